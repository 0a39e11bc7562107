"""Where a session without a process is resumed: in its own pane, in a new tmux window, or without a
terminal, by a run. A simulation replaces them with models."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from segue.runs.store import leases, open_store
from segue.system.files import state
from segue.system.process.procfs import system
from segue.system.tmux import hosting
from segue.system.tmux.tmux import Tmux
from segue.watch.handoffs.seating import shell_waits
from segue.watch.state import DaemonState, TrackedSession

_RUN_S = 2.0  # by then, a run that cannot start has reported it


class Places:
    """Each method returns why it was not possible, or "". May raise TmuxError, SegueError,
    OSError."""

    def __init__(self, state: DaemonState) -> None:
        self.state = state
        self._runs: list[subprocess.Popen[bytes]] = []

    def holder(self, tracked: TrackedSession) -> str:
        """Why somebody else is writing to the session; "" if nobody is."""
        session = tracked.session
        with open_store() as store:
            holder = store.holder(f"session:{session.agent}:{session.session_id}")
        if holder is None or not leases.is_alive(holder):
            return ""
        if session.process is not None and holder.pid == session.process.pid:
            return ""  # the agent itself, which `segue back` has become
        return f"process {holder.pid} has the session ({holder.note or 'a run'})"

    def program(self, tracked: TrackedSession) -> str:
        """The program that ran; if it was replaced since, what its name leads to now."""
        if tracked.program and os.access(tracked.program, os.X_OK):
            return tracked.program
        return shutil.which(tracked.session.agent, path=self.state.env.get("PATH")) or ""

    def is_running(self, pid: int) -> bool:
        """Whether the agent that was started as this process still runs."""
        return system().facts(pid) is not None

    def in_pane(self, tracked: TrackedSession, id: str) -> str:
        """Types one line of segue's own into the shell in which the agent ran."""
        seat = tracked.seat
        if seat is None:
            return "its pane is unknown"
        pane = Tmux(seat.socket).pane(seat.pane)
        if pane is None or pane.tty != seat.tty:
            return "its pane is gone"
        if tracked.shell_line is None or not shell_waits(pane):
            return "no shell waits in its pane"
        words = [*program(), "back", id]
        if folder := self.state.env.get("SEGUE_HOME"):
            words += ["--state", folder]  # the shell may not know it
        refused = self.state.typist.command(seat.socket, seat.pane, words, line=tracked.shell_line)
        if refused is None:
            return ""
        return _NO_COMMAND.get(refused.why, refused.detail or refused.why)

    def in_window(self, tracked: TrackedSession, id: str, agent: str = "") -> str:
        """Starts an agent in the tmux server where the session ran: its own agent, or the one
        named."""
        agent = agent or tracked.session.agent
        if tracked.socket == state.open_socket_path():
            # Nobody would see a window there; a separate session can be reattached.
            command = (*program(), "back", id)
            hosting.start(agent, command, self.state.env, tracked.session.cwd)
            return ""
        tmux = Tmux(tracked.socket)
        session = ""
        if tracked.seat is not None:
            pane = tmux.pane(tracked.seat.pane)
            session = pane.session if pane else ""
        command = (*program(), "back", id)
        tmux.new_window(tracked.session.cwd, command, _env(self.state.env), agent, session)
        return ""

    def headless(self, tracked: TrackedSession, id: str, task: str) -> str:
        """A run takes the work over, with this task."""
        session = tracked.session
        self._runs = [run for run in self._runs if run.poll() is None]
        folder = _logs()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = folder / f"{id}.log"
        with open(place, "ab", opener=_private) as log:
            run = subprocess.Popen(  # noqa: S603 - ourselves
                # The user never ran segue here, so a check set by a repository is not theirs.
                [*program(), "run", "--agent", session.agent, "--no-project-check", "-"],
                cwd=session.cwd,
                env=dict(self.state.env),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert run.stdin is not None
        with suppress(BrokenPipeError), run.stdin as stdin:
            stdin.write(task.encode())
        self._runs.append(run)
        try:
            code = run.wait(_RUN_S)
        except subprocess.TimeoutExpired:
            return ""
        if code == 0:
            return ""
        lines = place.read_text("utf-8", "replace").strip().splitlines()
        return f"the run ended with {code}: {lines[-1] if lines else 'no output'}"

    def forget_logs(self, before: float) -> None:
        """Deletes the output of runs that wrote nothing since then. Each run keeps its own log
        (`segue logs`)."""
        with suppress(OSError):
            for file in _logs().glob("*.log"):
                with suppress(OSError):
                    if file.stat().st_mtime < before:
                        file.unlink()


_NO_COMMAND = {
    "gone": "its pane is gone",
    "not_in_front": "no shell waits in its pane",
    "draft": "something has been typed in its shell since then",
    "user_active": "somebody is typing there",
}


def _logs() -> Path:
    """The folder with the output of the runs that took over a session."""
    return Path(state.watch_folder()) / "headless"


def program() -> tuple[str, ...]:
    """The command that starts this segue again: the same interpreter, wherever the PATH leads."""
    script = Path(sys.executable).parent / "segue"
    if script.is_file() and os.access(script, os.X_OK):
        return (str(script),)
    return (sys.executable, "-m", "segue")


def _env(env: Mapping[str, str]) -> dict[str, str]:
    """Variables that move homes: a window has the tmux server's environment, not the daemon's."""
    names = ("SEGUE_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
    return {name: env[name] for name in names if env.get(name)}


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
