"""The rehearsal agent in its codex form. Options of a drill: see `rehearsal`."""

from pathlib import Path

from segue.drill.casts import Cast, Part, Stage, rehearsal
from segue.drill.casts.installed import newest

_HOME = ".rehearsal"
_UUID_CHARS = 36


def _start(program: str, stage: Stage, prompt: str, session: str) -> Part:
    claude = rehearsal.CAST.start(program, stage, "", "")
    place = claude.argv.index("-m") + 2
    argv = [*claude.argv[:place], "exec", "--json"]
    argv += ["resume", session, prompt] if session else [prompt]
    env = {"OPENAI_BASE_URL": f"{stage.url}/v1", "OPENAI_API_KEY": "rehearsal"}
    return Part(argv=argv, env={**claude.env, **env})


def _session(stage: Stage) -> tuple[str, Path | None]:
    """`rollout-<time>-<id>.jsonl`."""
    found = newest((stage.home / _HOME / "sessions").glob("**/*.jsonl"))
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
    kind=rehearsal.CAST.kind,
    session=_session,
)
