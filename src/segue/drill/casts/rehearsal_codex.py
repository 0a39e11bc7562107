"""The rehearsal agent in its codex form. Options of a drill: see `rehearsal`."""

from pathlib import Path

from segue.drill.casts import Cast, Driven, LegStart, PlayStage, rehearsal
from segue.drill.casts.installed import newest

_UUID_CHARS = 36


def _start(program: str, stage: PlayStage, prompt: str, session: str) -> LegStart:
    argv = [*rehearsal.command(program), "exec", "--json"]
    argv += ["resume", session, prompt] if session else [prompt]
    return LegStart(argv=argv, env=_env(stage))


def _driven(program: str, stage: PlayStage) -> Driven:
    # What segue knows about codex's home applies to it.
    more = {"CODEX_HOME": str(stage.home / rehearsal.HOME)}
    return Driven(command=rehearsal.command(program), env={**_env(stage), **more})


def _env(stage: PlayStage) -> dict[str, str]:
    ours = {"OPENAI_BASE_URL": f"{stage.url}/v1", "OPENAI_API_KEY": "rehearsal"}
    return {**rehearsal.env(stage), **ours}


def _session(stage: PlayStage) -> tuple[str, Path | None]:
    """The id in `rollout-<time>-<id>.jsonl`."""
    found = newest((stage.home / rehearsal.HOME / "sessions").glob("**/*.jsonl"))
    return (found.stem[-_UUID_CHARS:], found) if found else ("", None)


CAST = Cast(
    name="rehearsal-codex",
    agent="codex",
    needs_namespace=False,
    find=rehearsal.CAST.find,
    install=rehearsal.CAST.install,
    version=rehearsal.CAST.version,
    prepare=rehearsal.CAST.prepare,
    start=_start,
    driven=_driven,
    kind=rehearsal.CAST.kind,
    session=_session,
)
