"""A /proc that tests make up, with homes for all agents."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from segue.agents.places import STORES
from segue.core.sessions.types import Process
from segue.sessions.find import Home
from segue.system.process import processes
from segue.system.process.procfs import Procfs

HERE = "linux:m1:pid:[1]"
ID = "11111111-1111-4111-8111-111111111111"
OTHER_ID = "22222222-2222-4222-8222-222222222222"
HZ = os.sysconf("SC_CLK_TCK")


class World:
    """A /proc of its own, and a home for each agent."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "proc"
        self.folder = folder
        (self.root / "self" / "ns").mkdir(parents=True)
        (self.root / "self" / "ns" / "pid").symlink_to("pid:[1]")
        (folder / "machine-id").write_text("m1\n")
        self.locks = ""

    def home(self, agent: str) -> Path:
        home = self.folder / "homes" / agent
        home.mkdir(parents=True, exist_ok=True)
        return home

    def runs(
        self,
        pid: int,
        name: str,
        *arguments: str,
        ticks: int = 512,
        parent: int = 1,
        state: str = "S",
        cwd: str = "/project",
        program: str = "/usr/bin/node",
        opened: tuple[str, ...] = (),
    ) -> Path:
        entry = self.root / str(pid)
        (entry / "fd").mkdir(parents=True)
        (entry / "comm").write_text(name + "\n")
        (entry / "stat").write_text(
            f"{pid} ({name}) {state} {parent} " + "0 " * 17 + f"{ticks} 0 0\n"
        )
        (entry / "cmdline").write_text("".join(a + "\0" for a in arguments or (name,)))
        (entry / "environ").write_text("TOKEN=secret\0")
        (entry / "cwd").symlink_to(cwd)
        (entry / "exe").symlink_to(program)
        for number, target in enumerate(opened):
            (entry / "fd" / str(number)).symlink_to(target)
        return entry

    def pid_file(self, pid: int, **fields: Any) -> Path:
        file = self.home("claude") / "sessions" / f"{pid}.json"
        file.parent.mkdir(exist_ok=True)
        data = {
            "pid": pid,
            "sessionId": ID,
            "procStart": "512",
            "pidDomain": HERE,
            "startedAt": 1_005_400,
            "status": "busy",
        }
        file.write_text(json.dumps({k: v for k, v in (data | fields).items() if v is not None}))
        return file

    def lock_file(self, session_id: str, at: float = 1010.0) -> Path:
        file = self.home("codex") / "thread-writer-locks" / f"{session_id}.lock"
        file.parent.mkdir(exist_ok=True)
        file.touch()
        os.utime(file, (at, at))
        return file

    def locked(
        self, pid: int, file: Path, *, kind: str = "FLOCK", mode: str = "WRITE", device: str = ""
    ) -> None:
        info = file.stat()
        device = device or f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}"
        self.locks += f"1: {kind}  ADVISORY  {mode} {pid} {device}:{info.st_ino} 0 EOF\n"

    def living(self, *agents: str) -> list[Process]:
        (self.root / "locks").write_text(self.locks)
        homes = [Home(agent, str(self.home(agent)), STORES[agent]) for agent in agents or STORES]
        machine_id = str(self.folder / "machine-id")
        return processes.living(homes, Procfs(str(self.root), machine_id, booted_at=1000.0))


def pids(found: list[Process]) -> list[int]:
    """Which processes these are."""
    return [process.pid for process in found]


def watch(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are opened or listed from now on."""
    paths: list[str] = []

    def spy(name: str) -> None:
        real = getattr(os, name)

        def watched(path: str, *rest: Any) -> Any:
            paths.append(str(path))
            return real(path, *rest)

        monkeypatch.setattr(os, name, watched)

    spy("open")
    spy("listdir")
    return paths
