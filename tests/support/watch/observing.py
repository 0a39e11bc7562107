"""A home, an observer of it, and all that it has seen."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from segue.watch.observe import observer as observer_module
from segue.watch.observe.observer import Observer, Sighting
from support.agents.agents_alive import Agent
from support.homes import SESSION

SWEPT_S = 6 * observer_module.SWEEP_S
"""By then there was a sweep, however slow the machine is."""
OTHER = SESSION.replace("1", "2")


class World:
    """A home, an observer, and all that it has seen."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.claude = home / ".claude"
        self.claude.mkdir()
        self.offset_s = self.wall_offset_s = 0.0
        self.agents: list[Agent] = []
        self.seen: list[Sighting] = []
        self.observer = self.observe()

    def observe(self) -> Observer:
        return Observer(
            env={"HOME": str(self.home)},
            clock=lambda: time.time() + self.offset_s + self.wall_offset_s,
            steady=lambda: time.monotonic() + self.offset_s,
        )

    def agent(self, session: str = SESSION, status: str = "busy", name: str = "claude") -> Agent:
        self.agents.append(Agent(self.claude, session, status, name))
        return self.agents[-1]

    def until(self, condition: Callable[[Sighting], bool], patience_s: float = 60.0) -> Sighting:
        """Steps until something is seen."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            batch = self.observer.step(0.5)
            self.seen += batch
            for sighting in batch:
                if condition(sighting):
                    return sighting
        raise AssertionError(f"not seen: {self.seen[-3:]}")

    def append(self, file: Path, *lines: str) -> None:
        with file.open("a") as stream:
            stream.write("".join(line + "\n" for line in lines))


def used(sighting: Sighting) -> int:
    reading = sighting.session.reading
    return reading.used_tokens if reading is not None else 0


def codex_file(world: World, name: str, source: object) -> Path:
    """Empty without a source."""
    folder = world.home / ".codex" / "sessions" / "2026"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"rollout-2026-11-15T18-17-41-{name}.jsonl"
    meta = {"id": name, "cwd": "/p", "source": source}
    record = {"timestamp": "2026-11-15T18:17:41.000Z", "type": "session_meta", "payload": meta}
    file.write_text(json.dumps(record) + "\n" if source else "")
    return file
