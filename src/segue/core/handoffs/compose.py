"""Composes a checkpoint: merges everything that is known about a session without its agent, and
adds the agent's own answer."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from segue.core.handoffs.checkpoint import Checkpoint, Command, FileChanged
from segue.core.handoffs.digest import Digest, UserPrompt
from segue.core.handoffs.summary import AgentSummary, paths_in
from segue.core.sessions.remarks import Todo

CALLS_KEPT = 400
CALL_CHARS = 2_000
_COMMANDS = 60
_COMMAND_CHARS = 400
_INSTRUCTIONS = 50
_FILES = 400
_TODOS = 200


class CallMade(Struct, frozen=True, kw_only=True):
    """A tool call, and what is known about its result."""

    call_id: str = ""
    text: str = ""  # the command; of other tools, the name and the argument in short
    is_command: bool = False
    exit_code: int | None = None
    has_result: bool = False
    failed: bool = False
    in_doubt: bool = False  # the last thing of its session, and it may have been done or not


class Salvaged(Struct, frozen=True, kw_only=True):
    """What a session's records say, without its agent. Everything is bounded: the latest is
    kept."""

    instructions: tuple[str, ...] = ()  # what the user said in addition to segue
    todos: tuple[Todo, ...] = ()
    calls: tuple[CallMade, ...] = ()
    files: tuple[str, ...] = ()  # written, in the order of the work; below the folder: relative
    failing_tests: tuple[str, ...] = ()
    passed_tests: tuple[str, ...] = ()  # that had failed before
    text_tail: str = ""  # what the agent said last

    @property
    def commands(self) -> tuple[Command, ...]:
        """The shell commands."""
        return tuple(
            Command(call.text, call.exit_code, call.has_result, call.failed)
            for call in self.calls
            if call.is_command
        )

    @property
    def last_call(self) -> str | None:
        """The last tool call, if its result is missing or says only that the call was stopped."""
        return next((call.text for call in reversed(self.calls) if call.in_doubt), None)


class GitState(Struct, frozen=True, kw_only=True):
    """A repository at one moment."""

    head: str = ""  # a commit; "" before the first
    branch: str = ""  # "" if none is checked out
    status: str = ""  # as `git status --short`, in at most so many lines
    diff_stat: str = ""
    digest: str = ""
    """Another one if HEAD, the index, tracked content, or the set, size or time of untracked files
    changed; "" if that could not be found out in time."""


def combine(file: Salvaged, stream: Salvaged) -> Salvaged:
    """Combines a session's file with the output of its newest leg. A leg that was killed may
    have printed more than its session file contains. Calls in both are merged by their id or,
    if the two name them differently, by their content."""
    return Salvaged(
        instructions=_once((*file.instructions, *stream.instructions))[-_INSTRUCTIONS:],
        todos=file.todos or stream.todos,
        calls=_both(file.calls, stream.calls)[-CALLS_KEPT:],
        files=_once((*file.files, *stream.files))[:_FILES],
        failing_tests=_failing(file, stream),
        passed_tests=_once((*file.passed_tests, *stream.passed_tests)),
        text_tail=stream.text_tail or file.text_tail,
    )


def merge(sessions: Iterable[Salvaged]) -> Salvaged:
    """Merges a run's sessions, oldest first. Only the last call of the newest one can be in
    doubt: the others have been dealt with."""
    whole = Salvaged()
    for session in sessions:
        settled = tuple(_settled(call) if call.in_doubt else call for call in whole.calls)
        whole = Salvaged(
            instructions=_once((*whole.instructions, *session.instructions))[-_INSTRUCTIONS:],
            todos=session.todos or whole.todos,
            calls=(*settled, *session.calls)[-CALLS_KEPT:],
            files=_once((*whole.files, *session.files))[:_FILES],
            failing_tests=_failing(whole, session),
            passed_tests=_once((*whole.passed_tests, *session.passed_tests)),
            text_tail=session.text_tail or whole.text_tail,
        )
    return whole


def compose(
    task: str,
    *,
    summary: AgentSummary | None = None,
    salvaged: Salvaged | None = None,
    git: GitState | None = None,
    files: Sequence[FileChanged] = (),
    digest: Digest | None = None,
    window_tokens: int = 0,
    is_there: Callable[[str], bool] | None = None,
) -> Checkpoint:
    """Builds the checkpoint. `files`: the files that were written, in their current state;
    `is_there`: whether a path that the agent names exists."""
    known = salvaged or Salvaged()
    gone = (
        [path for path in paths_in(summary) if not is_there(path)] if summary and is_there else []
    )
    return Checkpoint(
        summary=summary,
        task=task,
        instructions=known.instructions,
        todos=known.todos[:_TODOS],
        files=tuple(files),
        gone=tuple(gone),
        commands=tuple(
            replace(command, text=cut(command.text, _COMMAND_CHARS))
            for command in known.commands[-_COMMANDS:]
        ),
        failing_tests=known.failing_tests,
        last_words="" if summary else known.text_tail,
        git_status=git.status if git else "",
        git_diff_stat=git.diff_stat if git else "",
        window_tokens=window_tokens,
        digest=_with_salvaged(digest, known) if digest is not None else None,
    )


def _with_salvaged(digest: Digest, known: Salvaged) -> Digest:
    """Adds what only the session's file contains: words that the user typed there, its todo
    list."""
    present = {" ".join(prompt.text.split()) for prompt in digest.prompts}
    more = [text for text in known.instructions if " ".join(text.split()) not in present]
    prompts = (*(UserPrompt(number=0, text=text) for text in more), *digest.prompts)
    return replace(digest, prompts=prompts, todos=known.todos[:_TODOS] or digest.todos)


def cut(text: str, max_chars: int) -> str:
    """The beginning of a text."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def _both(file: tuple[CallMade, ...], stream: tuple[CallMade, ...]) -> tuple[CallMade, ...]:
    """The file's calls with what the stream knows in addition, then those that only the stream
    has."""
    named = {call.call_id: place for place, call in enumerate(file) if call.call_id}
    ids = {call.call_id for call in stream}
    forms = {_form(call.call_id) for call in file}
    places: dict[str, list[int]] = {}  # of those that no id leads to
    for place, call in enumerate(file):
        if call.call_id not in ids:
            places.setdefault(call.text, []).append(place)
    calls = list(file)
    more = []
    for call in reversed(stream):  # the file may hold earlier legs: the last are the same
        found = named.get(call.call_id)
        if found is not None and not _may_be_same(file[found], call):
            found = None  # numbered again in each leg
        is_named_alike = bool(call.call_id) and _form(call.call_id) in forms
        if found is None and not is_named_alike and (same := places.get(call.text)):
            found = same.pop()
        if found is None:
            more.append(call)
        else:
            calls[found] = _same(calls[found], call)
    return (*calls, *reversed(more))


def _form(call_id: str) -> str:
    """`call_12` and `item_3` are names of two kinds: that they differ means nothing."""
    return call_id.partition("_")[0] if "_" in call_id else ""


def _may_be_same(one: CallMade, other: CallMade) -> bool:
    return one.text == other.text or one.is_command != other.is_command


def _same(one: CallMade, other: CallMade) -> CallMade:
    return CallMade(
        call_id=one.call_id,
        text=one.text if one.is_command else other.text,
        is_command=one.is_command or other.is_command,
        exit_code=one.exit_code if one.exit_code is not None else other.exit_code,
        has_result=one.has_result or other.has_result,
        failed=one.failed or other.failed,
        in_doubt=one.in_doubt and other.in_doubt,
    )


def _settled(call: CallMade) -> CallMade:
    return CallMade(
        call_id=call.call_id,
        text=call.text,
        is_command=call.is_command,
        exit_code=call.exit_code,
        has_result=call.has_result,
        failed=call.failed,
    )


def _failing(earlier: Salvaged, later: Salvaged) -> tuple[str, ...]:
    still = [test for test in earlier.failing_tests if test not in later.passed_tests]
    return _once((*still, *later.failing_tests))


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
