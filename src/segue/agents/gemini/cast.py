"""Gemini CLI, whose window is a constant in the client.

Options of a drill: `attempts`: how often it tries a request, at least 5 s apart.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from segue.agents.gemini.drive import FILES
from segue.drill.casts import Cast, Driven, LegStart, PlayStage, clean_env
from segue.drill.casts.installed import SCRIPT, newest, node, script, write
from segue.drill.model.ask import Ask, Kind

MODEL = "gemini-2.5-pro"  # without a name, it asks another model which one to use
_FLAGS = ("-m", MODEL, "-y")
_WIRE = "gemini"


def _find(env: Mapping[str, str]) -> str | None:
    return script("gemini", FILES, env)


def _prepare(stage: PlayStage) -> None:
    settings: dict[str, object] = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {
            "enableAutoUpdate": False,
            "enableAutoUpdateNotification": False,
            "sessionRetention": {"enabled": False},  # otherwise it deletes what it resumed
            "maxAttempts": int(stage.options.get("attempts", "3")),
        },
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    if stage.max_turns is not None:
        settings["model"] = {"maxSessionTurns": stage.max_turns}
    write(stage, ".gemini/settings.json", settings)


def _start(program: str, stage: PlayStage, prompt: str, session: str) -> LegStart:
    argv = [*_command(program), "-p", prompt, "-o", "stream-json", *_FLAGS]
    if session:
        argv += ["-r", session]
    return LegStart(argv=argv, env=_env(stage))


def _driven(program: str, stage: PlayStage) -> Driven:
    return Driven(command=_command(program), env=_env(stage), flags=_FLAGS)


def _command(program: str) -> tuple[str, ...]:
    return (node(program), program)


def _env(stage: PlayStage) -> dict[str, str]:
    more = {
        "GOOGLE_GEMINI_BASE_URL": stage.url,
        "GEMINI_API_KEY": "sk-drill",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_CLI_NO_RELAUNCH": "1",  # its launcher swallows signals
    }
    return clean_env(stage, **more)


def _kind(ask: Ask) -> Kind:
    if ask.wire == _WIRE and not ask.is_stream:
        # Its work is always streamed; anything else is a summary, its check, or a router's
        # question.
        text = [part.text for part in ask.parts if part.role == "system"] + [ask.last_text]
        return Kind.COMPACTION if any("state_snapshot" in t for t in text) else Kind.OTHER
    return Kind.MAIN


def _session(stage: PlayStage) -> tuple[str, Path | None]:
    files = list((stage.home / ".gemini/tmp").glob("*/chats/session-*.jsonl"))
    # A resumed session leaves a stub of two lines next to its own file.
    complete = [file for file in files if b'"type":"gemini"' in file.read_bytes()]
    file = newest(iter(complete or files))
    if file is None:
        return "", None
    with file.open(encoding="utf-8", errors="replace") as lines:
        try:
            return str(json.loads(next(lines, ""))["sessionId"]), file
        except (ValueError, KeyError, TypeError):
            return "", file


CAST = Cast(
    name="gemini",
    agent="gemini",
    window_tokens=1_048_576,
    find=_find,
    install=SCRIPT,
    version=lambda program: (*_command(program), "--version"),
    prepare=_prepare,
    start=_start,
    driven=_driven,
    kind=_kind,
    session=_session,
    takes_max_turns=True,
)
