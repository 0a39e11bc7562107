"""pi, under its newer and its older name.

Options of a drill: `retries`: how often it retries a refused request. `timeout_ms`: how long it
waits for the first byte.
"""

from collections.abc import Mapping
from pathlib import Path

from segue.drill.casts import Cast, Driven, LegStart, PlayStage, clean_env
from segue.drill.casts.installed import SCRIPT, newest, node, script, write
from segue.drill.model.ask import Ask, Kind

MODEL = "drill/drill-model"
_FLAGS = ("--model", MODEL)
_OUTPUT_TOKENS = 8_000
_FILES = (
    "@earendil-works/pi-coding-agent/dist/bundle/cli.js",
    "@earendil-works/pi-coding-agent/dist/cli.js",
    "@mariozechner/pi-coding-agent/dist/cli.js",
)
_CONFIG = ".pi/agent"


def _find(env: Mapping[str, str]) -> str | None:
    return script("pi", _FILES, env)


def _prepare(stage: PlayStage) -> None:
    provider, _, model = MODEL.partition("/")
    window = {"contextWindow": stage.window_tokens, "maxTokens": _OUTPUT_TOKENS}
    models = {
        provider: {
            "baseUrl": stage.url,
            "api": "anthropic-messages",
            "apiKey": "sk-drill",
            "models": [{"id": model, "input": ["text"], **window}],
        }
    }
    settings = {
        "retry": {
            "maxRetries": int(stage.options.get("retries", "3")),
            "baseDelayMs": 1_000,  # half of its default
            "provider": {
                "maxRetries": 0,
                "timeoutMs": int(stage.options.get("timeout_ms", "8000")),
            },
        },
        "compaction": {"keepRecentTokens": 1_000},  # a short job has no more to cut
    }
    write(stage, f"{_CONFIG}/models.json", {"providers": models})
    write(stage, f"{_CONFIG}/settings.json", settings)


def _start(program: str, stage: PlayStage, prompt: str, session: str) -> LegStart:
    argv = [*_command(program), "-p", "--mode", "json", *_FLAGS]
    if session:
        argv += ["--session", session]
    return LegStart(argv=[*argv, prompt], env=_env(stage))


def _driven(program: str, stage: PlayStage) -> Driven:
    return Driven(command=_command(program), env=_env(stage), flags=_FLAGS)


def _command(program: str) -> tuple[str, ...]:
    return (node(program), program)


def _env(stage: PlayStage) -> dict[str, str]:
    return clean_env(stage, PI_OFFLINE="1", PI_TELEMETRY="0", PI_SKIP_VERSION_CHECK="1")


def _kind(ask: Ask) -> Kind:
    instructions = " ".join(part.text for part in ask.parts if part.role == "system")
    if not ask.tools and "You are a context summarization assistant" in instructions:
        return Kind.COMPACTION
    return Kind.MAIN


def _session(stage: PlayStage) -> tuple[str, Path | None]:
    file = newest((stage.home / _CONFIG / "sessions").rglob("*.jsonl"))
    return (file.stem.rpartition("_")[2], file) if file else ("", None)


CAST = Cast(
    name="pi",
    agent="pi",
    find=_find,
    install=SCRIPT,
    version=lambda program: (*_command(program), "--version"),
    prepare=_prepare,
    start=_start,
    driven=_driven,
    kind=_kind,
    session=_session,
)
