"""opencode. Its five retries take about 70 s in total and cannot be configured."""

from collections.abc import Mapping
from pathlib import Path

from segue.drill.casts import Cast, Driven, LegStart, PlayStage, clean_env
from segue.drill.casts.installed import ARCH, SCRIPT, native, write
from segue.drill.model.ask import Ask, Kind
from segue.sessions import database

MODEL = "drill/drill-model"
_OUTPUT_TOKENS = 8_000
_DATABASE = ".local/share/opencode/opencode.db"
_CATALOGUE = ".cache/opencode/models.json"
"""Its cache of what all providers offer. If there is none, it reads the list in its own program,
which takes 1.8 of 4.4 CPU seconds at each start."""


def _files() -> tuple[str, ...]:
    """The binaries that this machine can run, the best first."""
    plain, old = f"opencode-linux-{ARCH}", f"opencode-linux-{ARCH}-baseline"
    names = (plain, old) if ARCH != "x64" or _has_avx2() else (old,)
    return tuple(f"{name}{libc}/bin/opencode" for name in names for libc in ("", "-musl"))


def _has_avx2() -> bool:
    try:
        return " avx2 " in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False


def _find(env: Mapping[str, str]) -> str | None:
    return native("opencode", _files(), env)


def _prepare(stage: PlayStage) -> None:
    provider, _, model = MODEL.partition("/")
    limit = {"context": stage.window_tokens, "output": _OUTPUT_TOKENS}
    config = {
        "$schema": "https://opencode.ai/config.json",
        "autoupdate": False,
        "share": "disabled",
        "snapshot": False,
        "model": MODEL,
        "small_model": MODEL,
        "permission": {"*": "allow"},
        "provider": {
            provider: {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{stage.url}/v1", "apiKey": "sk-drill"},
                "models": {model: {"limit": limit}},
            }
        },
    }
    write(stage, ".config/opencode/opencode.json", config)
    write(stage, _CATALOGUE, {})  # the drill's provider is in the config


def _start(program: str, stage: PlayStage, prompt: str, session: str) -> LegStart:
    argv = [program, "run", "--format", "json"]
    if session:
        argv += ["--session", session]
    # As an argument it would have quotes around it.
    return LegStart(argv=argv, env=_env(stage), stdin=prompt.encode())


def _driven(program: str, stage: PlayStage) -> Driven:
    return Driven(command=(program,), env=_env(stage))


def _env(stage: PlayStage) -> dict[str, str]:
    more = {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    }
    return clean_env(stage, **more)


def _kind(ask: Ask) -> Kind:
    if ask.wire == "chat":
        instructions = " ".join(part.text for part in ask.parts if part.role == "system")
        if "You are a title generator" in instructions:
            return Kind.TITLE
        if "You are a context summarization agent" in instructions:
            return Kind.COMPACTION
    return Kind.MAIN


def _session(stage: PlayStage) -> tuple[str, Path | None]:
    file = stage.home / _DATABASE
    if not file.is_file():
        return "", None
    try:
        rows = database.sessions(str(file))
    except database.Unreadable:
        return "", None
    return next(((row.session_id, file) for row in rows if not row.parent_id), ("", None))


CAST = Cast(
    name="opencode",
    agent="opencode",
    find=_find,
    install=SCRIPT,
    prepare=_prepare,
    start=_start,
    driven=_driven,
    kind=_kind,
    session=_session,
)
