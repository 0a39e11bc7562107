"""An agent that reads files full of stop messages, and then finishes, has completed.

The files hold the example of every wording we know: as source code, as a log, as docs. Each is
planted as a tool's output into a recorded run that ended well, in every form in which the agents
write a run down.
"""

import json
from collections.abc import Callable
from functools import cache

import pytest
from support.hostile.planting import Run, catalogue, judge, plant, planted_run, qwen_run, recorded

from segue.agents.ending import Channel

Sources = tuple[tuple[Channel, str], ...]

EXAMPLES_IN_A_FILE = 12  # all of a file is then within the tail that is read
SHOWN = 12


@cache
def examples() -> tuple[str, ...]:
    found = [example for wording in catalogue().wordings for example in wording.example]
    assert len(found) > 200
    return tuple(dict.fromkeys(found))


def source_code(texts: tuple[str, ...]) -> str:
    strings = "".join(f"    {json.dumps(text, ensure_ascii=False)},\n" for text in texts)
    first = json.dumps(texts[0], ensure_ascii=False)
    return (
        f"import re\n\nMESSAGES = [\n{strings}]\n\n\ndef test_known() -> None:\n"
        f"    assert is_known({first})\n"
    )


def log(texts: tuple[str, ...]) -> str:
    return "".join(
        f"2026-11-15 18:{n // 60:02d}:{n % 60:02d},104 ERROR client: {' '.join(text.split())}\n"
        for n, text in enumerate(texts)
    )


def bare_log(texts: tuple[str, ...]) -> str:
    """As the client itself prints them."""
    return "".join(f"{text}\n" for text in texts)


def docs(texts: tuple[str, ...]) -> str:
    rows = "".join(f"| `{' '.join(text.split())}` | it stops |\n" for text in texts)
    items = "".join(f"- {' '.join(text.split())}\n" for text in texts)
    quoted = "".join(f"> {' '.join(text.split())}\n" for text in texts)
    fenced = "".join(f"{text}\n" for text in texts)
    return (
        f"# Messages\n\n| Message | Then |\n|---|---|\n{rows}\nAs a list:\n\n{items}\nQuoted:\n\n"
        f"{quoted}\nVerbatim:\n\n```\n{fenced}```\n"
    )


KINDS: dict[str, Callable[[tuple[str, ...]], str]] = {
    "source": source_code,
    "log": log,
    "bare log": bare_log,
    "docs": docs,
}


@cache
def repository() -> tuple[tuple[str, str], ...]:
    """Names and contents: all examples in each kind of file, and each example in a file alone."""
    texts = examples()
    step = EXAMPLES_IN_A_FILE
    parts = [texts[n : n + step] for n in range(0, len(texts), step)]
    files = [
        (f"{kind} {n}", make(part)) for kind, make in KINDS.items() for n, part in enumerate(parts)
    ]
    return tuple(files)


@cache
def lone_files() -> tuple[tuple[str, str], ...]:
    return tuple(
        (f"{kind}: {text}", make((text,))) for kind, make in KINDS.items() for text in examples()
    )


# --- the forms --------------------------------------------------------------------------------


def stdout_and_stderr(run: Run) -> Sources:
    return (("stdout", run["stdout"]), ("stderr", run["stderr"]))


def with_session(agent: str, name: str, output: str, planted: str) -> Sources:
    """A run that prints only its answer: what its tool printed is in the session file alone."""
    run = recorded(agent, name)
    return (*stdout_and_stderr(run), ("transcript", plant(run["transcript"], output, planted)))


def stream(agent: str) -> Callable[[str], Sources]:
    return lambda planted: stdout_and_stderr(planted_run(agent, planted))


def session(agent: str) -> Callable[[str], Sources]:
    return lambda planted: (("transcript", planted_run(agent, planted)["transcript"]),)


def codex_human(planted: str) -> Sources:
    """The answer on stdout; the conversation, with what commands print, on stderr."""
    run = recorded("codex", "a-success-human")
    assert "one\nREADME.md\n" in run["stderr"]
    return (
        ("stdout", run["stdout"]),
        ("stderr", run["stderr"].replace("one\nREADME.md\n", planted)),
    )


def opencode_human(planted: str) -> Sources:
    run = recorded("opencode", "a-success-human")
    assert "one\nREADME.md\n" in run["stderr"]
    return (
        ("stdout", run["stdout"]),
        ("stderr", run["stderr"].replace("one\nREADME.md\n", planted)),
    )


def opencode_in_one_pipe(planted: str) -> Sources:
    """`opencode run … 2>&1`: in the order in which it was printed."""
    run = recorded("opencode", "a-success-human")
    first, last = run["stdout"].splitlines(keepends=True)
    head, tail = run["stderr"].replace("one\nREADME.md\n", "\0").split("\0")
    return (("stdout", f"{head.rstrip()}\n{first}{planted}{tail}{last}"),)


def gemini_answer(answer: str) -> Callable[[str], Sources]:
    def sources(planted: str) -> Sources:
        run = planted_run("gemini", planted)
        return (("stdout", answer), ("stderr", run["stderr"]), ("transcript", run["transcript"]))

    return sources


_GEMINI_JSON = {
    "session_id": "68af97b6-2fb8-49f6-a25f-f4c40b186fed",
    "response": "Done: hello.",
    "stats": {"models": {}, "tools": {"totalCalls": 1, "totalSuccess": 1, "totalFail": 0}},
}

FORMS: dict[str, tuple[str, Callable[[str], Sources]]] = {
    "claude stream-json": ("claude", stream("claude")),
    "claude json": ("claude", lambda p: with_session("claude", "a2-success-json", "tool-ran", p)),
    "claude text": ("claude", lambda p: with_session("claude", "a3-success-text", "tool-ran", p)),
    "claude transcript": ("claude", session("claude")),
    "codex exec --json": ("codex", stream("codex")),
    "codex human": ("codex", codex_human),
    "codex rollout": ("codex", session("codex")),
    "opencode json": ("opencode", stream("opencode")),
    "opencode human": ("opencode", opencode_human),
    "opencode human in one pipe": ("opencode", opencode_in_one_pipe),
    "opencode message records": ("opencode", session("opencode")),
    "gemini stream-json": ("gemini", stream("gemini")),
    "gemini json": ("gemini", gemini_answer(json.dumps(_GEMINI_JSON, indent=2))),
    "gemini text": ("gemini", gemini_answer("Done: hello.\n")),
    "pi json": ("pi", stream("pi")),
    "pi text": ("pi", lambda p: (("stdout", "Done: hello.\n"), *session("pi")(p))),
    "pi session": ("pi", session("pi")),
    "qwen stream-json": ("qwen", lambda p: stdout_and_stderr(qwen_run(p))),
}
PRINTING = ("codex human", "opencode human", "opencode human in one pipe")


def wrong(form: str, files: tuple[tuple[str, str], ...], *, named: bool = True) -> list[str]:
    agent, plant_in = FORMS[form]
    found = []
    for name, content in files:
        stop = judge(*plant_in(content), agent=agent if named else None, exit_code=0)
        if stop.reason.value != "completed":
            rule = stop.evidence[0].rule if stop.evidence else ""
            found.append(f"{stop.reason.value} by {rule} after reading {name}")
    return found


def report(form: str, found: list[str], count: int) -> str:
    return "\n  ".join([f"{form}: {len(found)} of {count} runs are misread", *found[:SHOWN]])


@pytest.mark.parametrize("form", FORMS)
def test_a_run_that_reads_trigger_files_and_finishes_is_completed(form: str) -> None:
    found = wrong(form, repository())
    assert not found, report(form, found, len(repository()))


@pytest.mark.parametrize("form", PRINTING)
def test_one_message_in_printed_tool_output_is_not_a_stop(form: str) -> None:
    """Where tools' output is printed as it is, a single message looks like the agent's own.

    One cannot be told apart: opencode's own notice of a refused permission, alone on a line. It
    counts, because a night that waits for a permission must not be called done.
    """
    found = [f for f in wrong(form, lone_files()) if "opencode.auto_rejecting" not in f]
    assert not found, report(form, found, len(lone_files()))


@pytest.mark.parametrize("form", [f for f in FORMS if "human" not in f and "text" not in f])
def test_records_tell_whose_they_are(form: str) -> None:
    """The same without naming the agent: the text of a planted file must not name another."""
    found = wrong(form, repository()[::4], named=False)
    assert not found, report(form, found, len(repository()[::4]))
