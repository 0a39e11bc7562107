"""The user's own check of the work: a shell command whose exit code says whether the task is
done."""

from collections.abc import Callable, Mapping
from pathlib import Path

from segue.runs.legs.leg import Leash, Leg, Spec

_TIMED_OUT = 124
_MAX_AGAIN = 3  # a check that crashes the machine must not do so forever
_BOTH = "exec 2>&1\n"  # one output, in its original order


class CheckCommand:
    """Runs like a leg, in its own folder: if segue is killed, the check keeps running, and the next
    segue finds it, or how it ended."""

    def __init__(self, folder: Path, max_s: float, awake: Callable[[], float]) -> None:
        self._leg, self._awake = Leg(folder), awake
        self._until = awake() + max_s
        self._is_late = False

    def start(
        self,
        command: str,
        cwd: str,
        env: Mapping[str, str],
        grace_s: float,
        leash: Leash | None = None,
    ) -> None:
        """Starts it, unless it was started before. A check that a reboot cut off has neither passed
        nor failed; it is started again, in a separate folder. Raises OSError or StateError."""
        argv = ("/bin/sh", "-c", _BOTH + command)
        spec = Spec(argv=argv, cwd=cwd, grace_s=grace_s, leash=leash)
        first = self._leg.folder
        for number in range(1, _MAX_AGAIN + 1):
            if not self._was_cut_off():
                break
            self._leg = Leg(first.with_name(f"{first.name}-again-{number}"))
        self._leg.start(spec, env)

    def _was_cut_off(self) -> bool:
        status = self._leg.status()
        found = self._leg.sweep_lost() if status.state == "lost" else status.exit
        return found is not None and found.lost

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self._leg.folder

    @property
    def output(self) -> Path:
        """What it printed so far, both streams together."""
        return self._leg.stdout

    def poll(self) -> int | None:
        """Its exit code; None while it runs. A check that takes too long is ended, and has
        failed."""
        status = self._leg.status()
        if status.state == "lost":
            return self._code(self._leg.sweep_lost().exit_code)
        if status.exit is not None:
            return self._code(status.exit.exit_code)
        if self._awake() > self._until and not self._is_late:
            self._is_late = True
            self.end()
        return None

    def end(self) -> None:
        """Ends it and what it started, without waiting."""
        self._leg.command("end", "end")

    def finish(self, limit_s: float) -> None:
        """Ends it, and waits until it is gone."""
        if self._leg.status().state in ("starting", "running"):
            self.end()
            self._leg.wait(limit_s)

    def _code(self, code: int | None) -> int:
        if self._is_late:
            return _TIMED_OUT
        return 1 if code is None else code
