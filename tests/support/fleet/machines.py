"""Machines for tests of a fleet: each has processes, a machine id, a HOME and a state folder of its
own; ending one ends all that runs on it, as a power cut does."""

import os
import shutil
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from support.playing import missing

_INSIDE = 'mount --bind "$1" /etc/machine-id && mount -t proc proc /proc && shift && "$@" & wait'
LEASE_S = 8
SEGUE = (sys.executable, "-c", "from segue.start import main; main()")


def why_not() -> str:
    """Why there can be no such machine here; "" if there can."""
    if shutil.which("unshare") is None:
        return "unshare is not installed"
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False
    )
    return "" if tried.returncode == 0 else "no mount and pid namespaces can be made here"


@dataclass
class TestMachine:
    """One of them."""

    __test__ = False

    folder: Path
    env: dict[str, str]
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @classmethod
    def make(cls, folder: Path, url: str, config: str) -> "TestMachine":
        if reason := why_not():
            missing(reason)
        (folder / "home").mkdir(parents=True)
        (folder / "segue").mkdir()
        (folder / "machine-id").write_text(uuid.uuid4().hex)
        (folder / "segue" / "config.toml").write_text(
            f'[fleet]\nurl = "{url}"\nlease_s = {LEASE_S}\n{config}'
        )
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "SEGUE_HOME": str(folder / "segue"),
            "TZ": "UTC",
            "GIT_CONFIG_GLOBAL": "/dev/null",
        }
        return cls(folder, env)

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        """A command of segue on it."""
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(
                ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _INSIDE,
                 "sh", str(self.folder / "machine-id"), *SEGUE, *words],
                env=self.env, cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def power_cut(self) -> None:
        """All that runs on it is gone."""
        for process in self.processes:
            process.kill()
            process.wait()
        self.processes.clear()

    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")
