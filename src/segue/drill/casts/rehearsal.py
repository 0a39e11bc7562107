"""The rehearsal agent in its claude form: it is part of segue, so it is always available.

Options of a drill: `plan` = "1": it has a subscription, so that a plan limit applies to it;
`retries`: how often it retries a refused request; `timeout_ms`: how long it waits for the first
byte; `wait_scale`: the factor for its own waits before a retry; `compact` = "0": it may not
compact.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import segue
from segue.drill.casts import Cast, Driven, LegStart, PlayStage, clean_env
from segue.drill.casts.installed import newest
from segue.drill.model.ask import Ask, Kind

HOME = ".rehearsal"
"""The folder of its sessions, below the stage's home."""
_ROOT = Path(segue.__file__).resolve().parent.parent
_MODULE = "segue.drill.rehearsal"


def _find(env: Mapping[str, str]) -> str | None:
    return sys.executable or None


def _python(program: str) -> Sequence[str]:
    """Python options that exclude the user's packages and the working folder: `-S`, `-s`, `-P`. The
    agent imports only segue, through `PYTHONPATH`."""
    return (program, "-S", "-s", "-P")


def _version(program: str) -> Sequence[str]:
    # This runs in the caller's environment, so it must find segue by itself.
    code = (
        f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from segue import __version__; "
        "print(__version__)"
    )
    return (*_python(program), "-c", code)


def _prepare(stage: PlayStage) -> None:
    (stage.home / "tmp").mkdir(parents=True, exist_ok=True)


def _start(program: str, stage: PlayStage, prompt: str, session: str) -> LegStart:
    argv = [*command(program), "-p", *_flags(stage)]  # the prompt arrives on stdin
    argv += ["--output-format", "stream-json", "--verbose"]
    if session:
        argv += ["--resume", session]
    return LegStart(argv=argv, env=env(stage), stdin=prompt.encode())


def _driven(program: str, stage: PlayStage) -> Driven:
    # What segue knows about claude's home applies to it.
    more = {"CLAUDE_CONFIG_DIR": str(stage.home / HOME)}
    return Driven(command=command(program), env={**env(stage), **more}, flags=_flags(stage))


def _flags(stage: PlayStage) -> list[str]:
    return [] if stage.max_turns is None else ["--max-turns", str(stage.max_turns)]


def command(program: str) -> list[str]:
    """The command that starts it, in either form."""
    return [*_python(program), "-m", _MODULE]


def env(stage: PlayStage) -> dict[str, str]:
    """Its whole environment, in either form."""
    options = stage.options
    key = "CLAUDE_CODE_OAUTH_TOKEN" if options.get("plan") == "1" else "ANTHROPIC_API_KEY"
    more = {
        "ANTHROPIC_BASE_URL": stage.url,
        key: "rehearsal",
        "REHEARSAL_HOME": str(stage.home / HOME),
        "REHEARSAL_WINDOW": str(stage.window_tokens),
        "REHEARSAL_WAIT_SCALE": options.get("wait_scale", "0.2"),
        "CLAUDE_CODE_MAX_RETRIES": options.get("retries", "2"),
        "API_TIMEOUT_MS": options.get("timeout_ms", "600000"),
        # Otherwise an answer that is not a stream would hide what happened to the stream.
        "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
        "PYTHONPATH": str(_ROOT),
    }
    if options.get("compact") == "0":
        more["DISABLE_AUTO_COMPACT"] = "1"
    return clean_env(stage, **more)


def _kind(ask: Ask) -> Kind:
    words = ask.last_text
    if ask.wire == "anthropic" and "<analysis>" in words and "<summary>" in words:
        return Kind.COMPACTION
    if ask.wire == "responses" and "CONTEXT CHECKPOINT COMPACTION" in words:
        return Kind.COMPACTION
    return Kind.MAIN


def _session(stage: PlayStage) -> tuple[str, Path | None]:
    found = newest((stage.home / HOME / "projects").glob("*/*.jsonl"))
    return (found.stem, found) if found else ("", None)


CAST = Cast(
    name="rehearsal",
    agent="claude",
    needs_namespace=False,
    find=_find,
    install="it comes with segue",
    version=_version,
    prepare=_prepare,
    start=_start,
    driven=_driven,
    kind=_kind,
    session=_session,
    takes_max_turns=True,
)
