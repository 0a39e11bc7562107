"""Claude Code.

Options of a drill: `plan` = "1": it is a subscriber, so that a plan limit applies to it. `retries`:
how often it retries a refused request. `timeout_ms`: how long it waits for the first byte.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from segue.agents.claude.drive import FILES
from segue.drill.casts import Cast, Driven, LegStart, PlayStage, clean_env
from segue.drill.casts.installed import SCRIPT, native, newest, write
from segue.drill.model.ask import SHELLS, Ask, Kind

MODEL = "claude-sonnet-4-5"  # its window is 200,000 tokens; newer models have a million
_CONFIG = ".claude"
_TAIL = "0" * 20
_KEY = f"sk-ant-api03-{_TAIL}"


def _find(env: Mapping[str, str]) -> str | None:
    return native("claude", FILES, env)


def _prepare(stage: PlayStage) -> None:
    # Otherwise it asks about its theme, the key and the folder.
    known = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [_TAIL], "rejected": []},
        "projects": {str(stage.project): {"hasTrustDialogAccepted": True}},
    }
    write(stage, f"{_CONFIG}/.claude.json", known)


def _start(program: str, stage: PlayStage, prompt: str, session: str) -> LegStart:
    argv = [program, "-p", "--output-format", "stream-json", "--verbose", *_flags(stage)]
    if session:
        argv += ["--resume", session]
    return LegStart(argv=argv, env=_env(stage), stdin=prompt.encode())


def _driven(program: str, stage: PlayStage) -> Driven:
    return Driven(command=(program,), env=_env(stage), flags=_flags(stage))


def _flags(stage: PlayStage) -> list[str]:
    flags = ["--allowedTools", "Bash", "--model", MODEL]  # the flag of a list is never last
    if stage.max_turns is not None:
        flags += ["--max-turns", str(stage.max_turns)]
    return flags


def _env(stage: PlayStage) -> dict[str, str]:
    # It obeys the headers of a plan's limit only with a subscriber's token.
    is_subscriber = stage.options.get("plan") == "1"
    key = "CLAUDE_CODE_OAUTH_TOKEN" if is_subscriber else "ANTHROPIC_API_KEY"
    more = {
        "ANTHROPIC_BASE_URL": stage.url,
        key: _KEY,
        "CLAUDE_CONFIG_DIR": str(stage.home / _CONFIG),
        "CLAUDE_CODE_TMPDIR": str(stage.home / "tmp"),
        "CLAUDE_CODE_MAX_RETRIES": stage.options.get("retries", "2"),
        "API_TIMEOUT_MS": stage.options.get("timeout_ms", "8000"),
        # Otherwise an answer without streaming hides what was done to the stream.
        "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
    }
    if os.geteuid() == 0:
        more["IS_SANDBOX"] = "1"  # otherwise root may not skip permissions
    return clean_env(stage, **more)


def _kind(ask: Ask) -> Kind:
    if ask.wire == "anthropic" and "<analysis>" in ask.last_text and "<summary>" in ask.last_text:
        return Kind.COMPACTION
    # Older versions first ask for a topic's name and for sub-agents, without a tool for steps.
    if (
        ask.wire == "anthropic"
        and ask.model.startswith("claude-")
        and not SHELLS.keys() & {*ask.tools}
    ):
        return Kind.OTHER
    return Kind.MAIN


def _session(stage: PlayStage) -> tuple[str, Path | None]:
    file = newest((stage.home / _CONFIG / "projects").glob("*/*.jsonl"))
    return (file.stem, file) if file else ("", None)


CAST = Cast(
    name="claude",
    agent="claude",
    find=_find,
    install=SCRIPT,
    prepare=_prepare,
    start=_start,
    driven=_driven,
    kind=_kind,
    session=_session,
    takes_max_turns=True,
)
