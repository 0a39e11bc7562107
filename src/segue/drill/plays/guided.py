"""A play with segue: `segue run` as a user would type it, with its own home and with waits that
are short enough for a drill."""

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil
from msgspec import Struct

import segue
from segue.core.runs.types import Run
from segue.drill import casts
from segue.errors import StateError
from segue.runs.legs.leg import Exit, KeeperRecord
from segue.runs.store import RUNS_NAME, open_store
from segue.system.process.procfs import Procfs

_ROOT = str(Path(segue.__file__).resolve().parent.parent)
_SEGUE = f"import sys; sys.path.insert(0, {_ROOT!r}); from segue.start import main; main()"
_POLICY: Mapping[str, bool | int | float] = {
    "reset_jitter_min_s": 0.1,
    "reset_jitter_max_s": 0.5,
    "unknown_reset_wait_s": 1.0,
    "unknown_reset_max_s": 4.0,
    "checkpoint_s": 30.0,
}


class End(Struct, frozen=True, kw_only=True):
    """What `segue run` left behind."""

    run: Run
    waits: int
    swept: int  # processes that its agents left behind and that segue ended


def resumed(start: casts.LegStart, home: Path, stderr: Path, addition: str) -> casts.LegStart:
    """How to resume the run that `start` began, with what the user adds."""
    place = start.argv.index("run")
    run = end_of(home, stderr).run.id
    words = ["resume", run, "--json", "--say", addition]
    return casts.LegStart(argv=[*start.argv[:place], *words], env=start.env)


def part(
    cast: casts.Cast,
    program: str,
    stage: casts.PlayStage,
    prompt: str,
    home: Path,
    settings: Mapping[str, bool | int | float],
) -> casts.LegStart:
    """Writes segue's private config into `home`; returns the command that starts it."""
    driven = cast.driven(program, stage)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = f"[agents.{cast.agent}]\ncommand = {json.dumps(list(driven.command))}\n"
    policy = "".join(
        f"{name} = {json.dumps(value)}\n" for name, value in {**_POLICY, **settings}.items()
    )
    text = f"{command}\n[policy]\n{policy}"
    (home / "config.toml").write_text(text, encoding="utf-8")
    argv = [sys.executable, "-P", "-c", _SEGUE, "run", "--json", "--agent", cast.agent]
    env = {**driven.env, "SEGUE_HOME": str(home)}
    return casts.LegStart(argv=[*argv, prompt, "--", *driven.flags], env=env)


def news(stdout: Path, after: int) -> tuple[list[str], int]:
    """segue's decisions in words, from byte `after` of its output on, and the offset at which to
    read on the next time."""
    with stdout.open("rb") as file:
        file.seek(after)
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    return [item for line in whole.splitlines() for item in _decision_lines(line)], after + len(
        whole
    )


def _decision_lines(line: bytes) -> Iterator[str]:
    event: dict[str, Any] = json.loads(line)
    for decision in event.get("decisions", []):
        kind, reason = decision["decision"], decision["reason"]
        if kind == "startleg" and decision["leg"] > 1:
            yield f"leg {decision['leg']}: {reason}"
        elif kind in ("ask", "waituntil", "finish"):
            yield reason


def signal_agent(home: Path, name: str) -> bool:
    """Sends a signal to the agent of the newest leg, and to nothing else; False if that agent is
    not running."""
    legs = sorted(home.glob("runs/*/leg-*/keeper.json"))
    if not legs:
        return False
    record = msgspec.json.decode(legs[-1].read_bytes(), type=KeeperRecord)
    try:
        process = psutil.Process(record.agent_pid)
        facts = Procfs().facts(record.agent_pid)
        if facts is not None and facts.start_ticks != record.agent_start_ticks:
            return False  # the agent has ended, and another process has its id
        process.send_signal(signal.Signals[name])  # this compares the start time again
    except psutil.NoSuchProcess:
        return False
    return True


def end_of(home: Path, stderr: Path) -> End:
    """The state in which `segue run` left its run. Raises StateError if there is no run."""
    if os.path.exists(home / RUNS_NAME):
        with open_store(str(home / RUNS_NAME)) as store:
            for run in store.runs():
                decisions = store.decisions(run.id)
                waits = sum(each.decision == "waituntil" for each in decisions)
                return End(run=run, waits=waits, swept=_swept(home))
    last_line = stderr.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
    raise StateError(f"segue run did not start: {last_line.removeprefix('segue: ') or 'no output'}")


def _swept(home: Path) -> int:
    files = home.glob("runs/*/leg-*/exit.json")
    return sum(len(msgspec.json.decode(file.read_bytes(), type=Exit).swept) for file in files)
