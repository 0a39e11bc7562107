"""The leash of this machine's agents: a small file that says when the fleet last heard from the
machine.

Keepers watch it (`runs/legs/keeper`) and kill their agent once it is too old, even if the rest of
segue is dead. Whoever sends heartbeats renews it. If it has expired in between, because the machine
slept or could not reach the database, a new era begins: agents of the old era are killed although
the machine is back, because another machine may have their tasks by now.
"""

import fcntl
import os
import secrets
from pathlib import Path
from typing import Any

from segue.runs.folders import read_json, write_json
from segue.runs.legs import leg
from segue.runs.legs.keeper import is_held, since_boot_s
from segue.system.files import state

clock = since_boot_s


class Leash:
    """The leash in one state folder."""

    def __init__(self, folder: str | None = None) -> None:
        self.path = Path(folder or state.state_folder(), "fleet", "leash.json")

    def renew(self, sent_at: float, max_s: float) -> None:
        """Records a heartbeat that arrived and was sent at `sent_at`. Raises OSError."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(self.path.with_suffix(".lock"), flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = self._read()
            era, answered_at = str(before.get("era", "")), sent_at
            if era and is_held(str(self.path), era):
                answered_at = max(answered_at, before["heard"])
            else:
                era = secrets.token_hex(8)
            write_json(self.path, {"era": era, "heard": answered_at, "max_s": max_s})
        finally:
            os.close(lock)

    def current(self) -> "leg.Leash | None":
        """What a process that starts now must be given: the leash's current era; None if the fleet
        does not hear from this machine."""
        era = str(self._read().get("era", ""))
        return (str(self.path), era) if era and is_held(str(self.path), era) else None

    def _read(self) -> dict[str, Any]:
        found = read_json(self.path)
        return found if isinstance(found, dict) else {}
