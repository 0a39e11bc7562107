"""A run with a list of agents, for tests: the rehearsal agent in two forms, each with a scripted
model of its own, and one project.

    with relay_stage(limited_at(5), within=tmp_path) as s:
        assert s.run().code == 0 and s.continuity().is_whole
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from segue.drill.model.script import Script
from segue.drill.model.server import Running, running
from segue.drill.scenarios import load
from support.running import QUICK, Staged, stage

HEALTHY = """\
about = "Nothing happens."
[job]
steps = {steps}
{more}"""
LIMITED = """\
about = "The plan's limit is reached before step {step}."
[job]
steps = {steps}
[[rules]]
before_step = {step}
fault = "plan_limit"
resets_in_s = {resets_in_s}
[options.rehearsal]
plan = "1"
{more}"""


class Relayed(Staged):
    """Both agents: claude's model is `server`, codex's is `other`."""

    other: Running


def healthy(steps: int = 8, more: str = "") -> str:
    return HEALTHY.format(steps=steps, more=more)


def limited_at(step: int, *, steps: int = 8, resets_in_s: int = 7_200, more: str = "") -> str:
    return LIMITED.format(step=step, steps=steps, resets_in_s=resets_in_s, more=more)


@contextmanager
def relay_stage(
    first: str,
    second: str | None = None,
    *,
    within: Path,
    policy: Mapping[str, object] = QUICK,
) -> Iterator[Relayed]:
    """`first` and `second` are the scenarios of claude's and codex's model, as text, with the same
    job."""
    place = within / "first.toml"
    place.write_text(first)
    other = within / "second.toml"
    other.write_text(second or healthy())
    with stage(str(place), within=within, policy=policy) as s:
        played = load.load(str(other))
        window = (played.context.window_tokens if played.context else None) or 200_000
        with running(Script(played, window_tokens=window)) as server:
            command = s.conf.partition("command = ")[2].partition("\n")[0]
            env = {
                "OPENAI_BASE_URL": f"{server.url}/v1",
                "OPENAI_API_KEY": "rehearsal",
                "CODEX_HOME": s.env["REHEARSAL_HOME"],
                "REHEARSAL_WINDOW": str(window),
            }
            told = ", ".join(f"{name} = {json.dumps(value)}" for name, value in env.items())
            s.conf += f'[agents.codex]\ncommand = {command}\nlike = "codex"\nenv = {{ {told} }}\n'
            s.env |= {"CODEX_HOME": env["CODEX_HOME"], "CODEX_API_KEY": "rehearsal-codex"}
            s.agent = "claude,codex"
            s.config(policy=policy)
            s.__class__ = Relayed
            assert isinstance(s, Relayed)
            s.other = server
            yield s
