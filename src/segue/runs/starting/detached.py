"""A run with its own process: in its own process session, without a terminal, immune to
hang-ups. Its messages go to the run's folder."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from segue.core.runs.types import Run
from segue.errors import StateError
from segue.runs.folders import RunFolder
from segue.runs.store.port import Store, run_key
from segue.system import units
from segue.system.files import state

LOG_NAME = "segue.log"
START_S = 60.0  # a start takes half a second; more only on an overloaded machine
_LOOK_S = 0.05
# A shell sets what a new program inherits; the words are arguments, and never parsed by it.
_DEAF = ("/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "sh")


def deaf(words: Sequence[str]) -> list[str]:
    """The same command, started so that no hang-up ends it."""
    return [*_DEAF, *words]


class Detached:
    """A process that continues a run. It outlives the process that started it."""

    def __init__(self, run: Run, options: Sequence[str], env: Mapping[str, str]) -> None:
        """Starts `segue resume` for this run. Raises OSError."""
        self.run_id, self._run = run.id, run
        folder = RunFolder(run.id).path
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.log = folder / LOG_NAME
        own = dict(env)
        if own.get("SEGUE_HOME"):
            own["SEGUE_HOME"] = os.path.abspath(state.state_folder())
        with open(self.log, "ab", opener=_private) as log:
            self._from = log.tell()
            self.process = subprocess.Popen(  # noqa: S603 - ourselves
                deaf(units.own_argv("resume", run.id, *options)),
                cwd=run.cwd,
                env=own,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def begun(self, store: Store, limit_s: float = START_S) -> None:
        """Returns once the process drives the run, or has driven it to its end. Raises StateError
        with the process's last line if it failed."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            holder = store.holder(run_key(self.run_id))
            if holder is not None and holder.pid == self.process.pid:
                return
            if self.process.poll() is not None:
                found = store.run(self.run_id)
                # One that had ended before and is as it was then was not driven.
                if found is not None and found.state.is_final and found != self._run:
                    return
                raise StateError(f"{self.run_id} could not be detached: {self.last_line()}")
            time.sleep(_LOOK_S)
        raise StateError(f"{self.run_id}: its process does not respond; see {self.log}")

    def last_line(self) -> str:
        """The last line that the process printed."""
        try:
            text = Path(self.log).read_bytes()[self._from :].decode("utf-8", "replace")
        except OSError:
            text = ""
        lines = text.strip().splitlines()
        return lines[-1].removeprefix("segue: ") if lines else f"exit code {self.process.poll()}"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
