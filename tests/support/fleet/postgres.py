"""A real PostgreSQL for tests: Debian's, in a folder of its own, as an unprivileged user, reached
by a socket in that folder alone."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.playing import missing
from support.waiting import until

_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off")


def binaries() -> Path | None:
    """Where the server's programs are; None if it is not installed."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    found = shutil.which("initdb")
    place = places[-1] if places else Path(found).resolve() if found else None
    return place.parent if place is not None else None


@dataclass
class Postgres:
    """A server."""

    folder: Path
    bin: Path
    user: str
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def _run_as(self) -> dict[str, Any]:
        """Root may not run it."""
        if os.geteuid() != 0:
            return {}
        entry = pwd.getpwnam("postgres")
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}

    def make(self) -> None:
        if os.geteuid() == 0:
            entry = pwd.getpwnam("postgres")
            os.chown(self.folder, entry.pw_uid, entry.pw_gid)
        words: list[str | Path] = [self.bin / "initdb", "-D", self.folder / "data"]
        words += ["-U", self.user, "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"]
        subprocess.run(words, check=True, capture_output=True, cwd="/", **self._run_as())

    def start(self, *options: str) -> None:
        words: list[str] = []
        for option in ("listen_addresses=", *_FAST, *options):
            words += ["-c", option]
        self.processes.append(
            subprocess.Popen(
                [self.bin / "postgres", "-D", self.folder / "data", "-k", self.folder, *words],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={**os.environ, "HOME": str(self.folder)},
                **self._run_as(),
            )
        )
        ports = [each.removeprefix("port=") for each in options if each.startswith("port=")]
        ask: list[str | Path] = [self.bin / "pg_isready", "-q", "-h", self.folder, "-U", self.user]
        ask += ["-p", *ports] if ports else []
        until(lambda: not subprocess.run(ask, check=False).returncode, "PostgreSQL comes up")

    def stop(self) -> None:
        """At once, as a power cut does."""
        for process in self.processes:
            process.send_signal(3)  # SIGQUIT: immediate shutdown
            process.wait()
        self.processes.clear()

    def url(self, database: str = "postgres", user: str = "") -> str:
        return f"postgresql://{user or self.user}@/{database}?host={self.folder}"

    def tcp_url(self, port: int, user: str = "", password: str = "", more: str = "") -> str:
        """By loopback, where passwords and TLS count."""
        who = f"{user or self.user}{':' if password else ''}{password}"
        return f"postgresql://{who}@127.0.0.1:{port}/postgres{more}"

    def sql(self, text: str, database: str = "postgres") -> None:
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as db:
            db.execute(text.encode())


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A server, for as long as the block lasts."""
    found = binaries()
    if found is None:
        missing("PostgreSQL's server is not installed: apt-get install postgresql")
    assert found is not None
    folder = Path(tempfile.mkdtemp(prefix="segue-pg-"))
    folder.chmod(0o711)
    server = Postgres(folder, found, "tester")
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
