"""Codex.

Options of a drill: `retries`: how often it retries a refused request or a broken stream. `idle_ms`:
how long a stream may be silent.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from segue.agents.codex.drive import FILES
from segue.drill.casts import Cast, Driven, LegStart, PlayStage, clean_env
from segue.drill.casts.installed import SCRIPT, native, newest, write
from segue.drill.model.ask import Ask, Kind

MODEL = "gpt-5.5"  # newer models have no plain shell tool
_CONFIG = ".codex"
_COMPACTS = "You are performing a CONTEXT CHECKPOINT COMPACTION"
_FLAGS = ("--dangerously-bypass-approvals-and-sandbox",)
_ID_LENGTH = 36


def _find(env: Mapping[str, str]) -> str | None:
    return native("codex", FILES, env)


def _prepare(stage: PlayStage) -> None:
    retries = stage.options.get("retries", "2")
    config = f"""\
model = "{MODEL}"
model_provider = "drill"
model_context_window = {stage.window_tokens}
check_for_update_on_startup = false

[features]
plugin_discovery_prefetch = false  # else it waits for the world before it ends

[analytics]
enabled = false

[feedback]
enabled = false

[projects.{json.dumps(str(stage.project), ensure_ascii=False)}]
trust_level = "trusted"

[model_providers.drill]
name = "drill"
base_url = "{stage.url}/v1"
env_key = "DRILL_KEY"
wire_api = "responses"
request_max_retries = {retries}
stream_max_retries = {retries}
stream_idle_timeout_ms = {stage.options.get("idle_ms", "8000")}
"""
    write(stage, f"{_CONFIG}/config.toml", config)


def _start(program: str, stage: PlayStage, prompt: str, session: str) -> LegStart:
    argv = [program, "exec"]
    if session:
        argv += ["resume", session]
    argv += ["--json", *_FLAGS, "--skip-git-repo-check"]
    # It would wait forever for a server that does not exist.
    argv += ["-c", "features.unbounded_connection_retries=false", prompt]
    return LegStart(argv=argv, env=_env(stage))


def _driven(program: str, stage: PlayStage) -> Driven:
    return Driven(command=(program,), env=_env(stage), flags=_FLAGS)


def _env(stage: PlayStage) -> dict[str, str]:
    return clean_env(stage, CODEX_HOME=str(stage.home / _CONFIG), DRILL_KEY="sk-drill")


def _kind(ask: Ask) -> Kind:
    if ask.wire == "responses" and ask.last_text.lstrip().startswith(_COMPACTS):
        return Kind.COMPACTION
    return Kind.MAIN


def _session(stage: PlayStage) -> tuple[str, Path | None]:
    file = newest((stage.home / _CONFIG / "sessions").rglob("rollout-*.jsonl"))
    return (file.stem[-_ID_LENGTH:], file) if file else ("", None)


CAST = Cast(
    name="codex",
    agent="codex",
    find=_find,
    install=SCRIPT,
    prepare=_prepare,
    start=_start,
    driven=_driven,
    kind=_kind,
    session=_session,
)
