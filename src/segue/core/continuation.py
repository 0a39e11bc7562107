"""What segue says to a session: the request for a checkpoint, the first words of the session that
goes on after it, and what the same session is told when it is begun again or the user's check did
not pass; and what a session in a terminal is told as its window fills, up to its handoff. Templates
are texts with named blanks; loading them is `io/prompts`."""

import re
from collections.abc import Collection, Mapping

from segue.core.checkpoint import MOST_CHARS, Checkpoint, render
from segue.core.lines import shorten
from segue.core.redact import redact
from segue.core.stop import StopReason

REQUEST, CONTINUATION = "checkpoint_request", "continuation"
RESUME, CHECK_FAILED = "resume", "check_failed"
LARGE_TASK, HIGH_CONTEXT = "large_task", "high_context"
HANDOFF_REQUEST, HANDOFF_RESUME = "handoff_request", "handoff_resume"
NAMES: Mapping[str, tuple[str, ...]] = {
    REQUEST: (),
    CONTINUATION: ("reason", "leg", "task", "checkpoint", "note"),
    RESUME: ("reason", "note"),
    CHECK_FAILED: ("command", "exit_code", "output"),
    LARGE_TASK: (),
    HIGH_CONTEXT: (),
    HANDOFF_REQUEST: ("file",),
    HANDOFF_RESUME: ("file",),
}
"""The blanks that a template must have."""
OPTIONAL: Mapping[str, tuple[str, ...]] = {
    REQUEST: ("reason", "most_words"),
    CONTINUATION: (),
    RESUME: ("leg",),
    CHECK_FAILED: ("leg",),
    LARGE_TASK: ("percent", "tokens", "limit"),
    HIGH_CONTEXT: ("percent", "used", "window"),
    HANDOFF_REQUEST: ("percent", "most_words"),
    HANDOFF_RESUME: ("reason", "note"),
}
"""Those that it may have besides."""

_TAG = "<checkpoint>"
_BLANK = re.compile(
    r"\{\{([A-Za-z_][A-Za-z0-9_]*)\}\}|\{[ ]{0,3}([A-Za-z_][A-Za-z0-9_]*)[ ]{0,3}\}"
)
_OWN_TAG = re.compile(r"<(?=\s{0,3}/?\s{0,3}checkpoint\b)", re.IGNORECASE)
_MOST_WORDS = 2_000  # some 3,000 tokens: below the cap of the request
_CALL_CHARS = 2_000
_OUTPUT_CHARS = 8_000
_NOT_TEXT = re.compile(r"\x1b\[[0-9;?]{0,30}[A-Za-z]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

# No word of a break where nothing broke: it would make the agent doubt what is surely done.
_WHY = {
    StopReason.CONTEXT_EXHAUSTED: "The previous session's context window was full, or nearly so.",
    StopReason.RATE_LIMIT: "The previous session reached a rate limit, and could not be resumed.",
    StopReason.OVERLOADED: "The provider of the previous session was overloaded or out of reach.",
    StopReason.TIMEOUT: "The previous session timed out.",
    StopReason.CRASH: "The previous session crashed or was killed.",
    StopReason.COMPLETED: "The previous session ended, but the task is not done.",
    StopReason.MAX_TURNS: "The previous session reached its limit of turns.",
    StopReason.NEEDS_USER: "The previous session ended waiting for an answer of the user's.",
    StopReason.USER_EXIT: "The previous session was ended by the user, who then had it continued.",
}
# The same for a session that is begun again.
_WHY_AGAIN = {
    StopReason.RATE_LIMIT: "A rate limit was reached; it is over now.",
    StopReason.OVERLOADED: "The provider was overloaded or out of reach; it is tried again.",
    StopReason.TIMEOUT: "The session timed out.",
    StopReason.CRASH: "The session's process crashed or was killed.",
    StopReason.COMPLETED: "The turn ended, but the task is not done.",
    StopReason.MAX_TURNS: "The limit of turns was reached.",
    StopReason.NEEDS_USER: "An answer of the user's was awaited.",
    StopReason.USER_EXIT: "The user ended the session, and then had it continued.",
}
_RULES_ONLY = (
    "The previous session was cut off before it could write a checkpoint itself: this is what its"
    " records and the files tell. What is done is in the files and, if there is a repository, in"
    " its history: look there first."
)
_NONE = (
    "There is no checkpoint: the previous session was cut off before it could write one. What is"
    " done is in the files and, if there is a repository, in its history: look there first."
)
_IN_DOUBT = """
The last tool call{whose} was interrupted, or its result was lost: it may have been
done already, in full or in part. Look at what is there before you do it again.{call}
"""


def check_template(text: str, names: Collection[str], optional: Collection[str] = ()) -> list[str]:
    """What is wrong with a template, one line each: blanks that nobody fills, and blanks that are
    missing. `{{word}}` is the word in braces."""
    known = {*names, *optional}
    found = [match[2] for match in _BLANK.finditer(text) if match[2]]
    faults = [
        f"unknown placeholder {{{name}}}: known are {_listed(known)};"
        f" write {{{{{name}}}}} for the word in braces"
        for name in dict.fromkeys(found)
        if name not in known
    ]
    return faults + [f"missing placeholder {{{name}}}" for name in names if name not in found]


def faults_of(name: str, text: str) -> list[str]:
    """The same for one of our templates, and what else it cannot do without."""
    faults = check_template(text, NAMES[name], OPTIONAL[name])
    if name == REQUEST and _TAG not in text:
        faults.append(f"missing {_TAG}: the agent must be told to answer with such a block")
    return faults


def fill(text: str, values: Mapping[str, str]) -> str:
    """The template with its blanks filled, in one pass: braces in the values are left alone."""

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return f"{{{match[1]}}}"
        return values.get(match[2], match[0])

    return _BLANK.sub(value, text)


def request(
    template: str,
    *,
    reason: str = "the context window is nearly full",
    most_words: int = _MOST_WORDS,
) -> str:
    """What asks a session for its checkpoint."""
    return fill(template, {"reason": reason, "most_words": f"{most_words:,}"})


def continuation(
    template: str,
    *,
    task: str,
    checkpoint: Checkpoint | None,
    reason: StopReason,
    leg: int,
    call_in_doubt: str | None = None,
    most_chars: int = MOST_CHARS,
) -> str:
    """The first prompt of the session that goes on. `leg`: which one this is, from 1. The task is
    handed on word for word, the checkpoint without secrets and in at most `most_chars`.

    `call_in_doubt`: the last tool call, if no result of it was seen; "" if even the call is not
    known; None if there is no doubt."""
    told = _rendered(checkpoint, most_chars) if checkpoint else ""
    values = {
        "reason": _why(reason),
        "leg": str(leg),
        "task": task,
        # A checkpoint that says how it ends would end there.
        "checkpoint": f"{_TAG}\n{_OWN_TAG.sub('‹', told) or _NONE}\n</checkpoint>",
        "note": _note(call_in_doubt, " of the previous session"),
    }
    return fill(template, values)


def resume(template: str, *, reason: StopReason, leg: int, call_in_doubt: str | None = None) -> str:
    """What a session is told when it is begun again. `call_in_doubt` as for `continuation`."""
    values = {
        "reason": _WHY_AGAIN.get(reason, f"The session stopped: {reason.description}."),
        "leg": str(leg),
        "note": _note(call_in_doubt, ""),
    }
    return fill(template, values)


def check_failed(template: str, *, command: str, exit_code: int, output: str, leg: int = 0) -> str:
    """What a session is told when the user's check of its work did not pass: with the end of what
    the check printed, without secrets."""
    values = {
        "command": _indented(command.strip()),
        "exit_code": str(exit_code),
        "output": _indented(_end_of(output)) or "    (nothing)",
        "leg": str(leg),
    }
    return fill(template, values)


def large_task(template: str, *, percent: float, task_tokens: int, most_tokens: int) -> str:
    """What is said before a task that is too large for what is left of the window: how large it is
    thought to be, and how large one may be now."""
    values = {
        "percent": f"{percent:.0f}",
        "tokens": f"{task_tokens:,}",
        "limit": f"{most_tokens:,}",
    }
    return fill(template, values)


def high_context(template: str, *, percent: float, used_tokens: int, window_tokens: int) -> str:
    """The reminder that the window is nearly full."""
    values = {
        "percent": f"{percent:.0f}",
        "used": f"{used_tokens:,}",
        "window": f"{window_tokens:,}",
    }
    return fill(template, values)


def handoff_request(
    template: str, *, percent: float, file: str, most_words: int = _MOST_WORDS
) -> str:
    """What asks a session in a terminal to write its handoff document to this file."""
    values = {"percent": f"{percent:.0f}", "file": file, "most_words": f"{most_words:,}"}
    return fill(template, values)


def handoff_resume(
    template: str,
    *,
    file: str,
    reason: StopReason = StopReason.CONTEXT_EXHAUSTED,
    call_in_doubt: str | None = None,
) -> str:
    """What the session after it is told first. `call_in_doubt` as for `continuation`."""
    values = {
        "file": file,
        "reason": _why(reason),
        "note": _note(call_in_doubt, " of the previous session"),
    }
    return fill(template, values)


def _why(reason: StopReason) -> str:
    return _WHY.get(reason, f"The previous session stopped: {reason.description}.")


def _rendered(checkpoint: Checkpoint, most_chars: int) -> str:
    if checkpoint.told is not None:
        return render(checkpoint, most_chars=most_chars, with_task=False)
    room = most_chars - len(_RULES_ONLY) - 2
    known = render(checkpoint, most_chars=room, with_task=False)
    return f"{_RULES_ONLY}\n\n{known}" if known else ""


def _end_of(output: str) -> str:
    """Whole lines; of a last line that is too long, its end."""
    text = _NOT_TEXT.sub("", output[-32 * _OUTPUT_CHARS :])
    text = redact(text.replace("\r\n", "\n").replace("\r", "\n").rstrip())[0]
    kept, _ = shorten(text, _OUTPUT_CHARS, keeps_end=True)
    return (kept or "…" + text[-_OUTPUT_CHARS:]).strip("\n") if text else ""


def _indented(text: str) -> str:
    return "    " + text.replace("\n", "\n    ") if text else ""


def _note(call_in_doubt: str | None, whose: str) -> str:
    if call_in_doubt is None:
        return ""
    return fill(_IN_DOUBT, {"call": _call(call_in_doubt), "whose": whose})


def _call(text: str) -> str:
    short, _ = shorten(redact(text.strip())[0], _CALL_CHARS)
    return "\n\n" + _indented(short) if short else ""


def _listed(names: Collection[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names)) or "none"
