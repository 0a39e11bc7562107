"""A tmux server of a test's own, fake TUIs in its panes, and users who sit before them."""

import json
import os
import pty
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from segue.agents.contracts.terminal import Terminal
from segue.core.terminals.screen import Screen
from segue.system.process.procfs import system
from segue.system.tmux.panes import AgentPane
from segue.system.tmux.tmux import Tmux
from support.terminals import fake_tui
from support.waiting import until

LIMIT_S = 60.0


class Sat:
    """A fake TUI in a pane of its own session."""

    def __init__(self, server: "Server", session: str, pane: str, file: Path) -> None:
        self.server, self.session, self.pane, self.file = server, session, pane, file
        self.tmux = server.tmux
        self.terminal: Terminal = fake_tui.terminal()

    @property
    def seat(self) -> AgentPane:
        pane = self.tmux.pane(self.pane)
        assert pane is not None
        facts = system().facts(pane.pid)
        assert facts is not None
        return AgentPane(
            socket=self.tmux.socket,
            pane=pane.id,
            tty=pane.tty,
            pid=pane.pid,
            start_ticks=facts.start_ticks,
            agent="fake",
        )

    def screen(self) -> Screen:
        return fake_tui.read(self.tmux.capture(self.pane))

    def messages(self) -> list[str]:
        try:
            whole, _, _ = self.file.read_text("utf-8").rpartition("\n")
            return [json.loads(line) for line in whole.splitlines()]
        except FileNotFoundError:
            return []

    def landed(self, text: str) -> Callable[[], bool]:
        return lambda: text in self.messages()

    def command(self, text: str, state: str) -> None:
        """Brings it into a state, as nobody who is seen."""
        self.tmux.literal(self.pane, text + "\r")
        until(lambda: self.screen().state == state)

    def draft(self, text: str) -> None:
        self.tmux.paste(self.pane, text)
        until(lambda: self.screen().draft == text)


class Server:
    """tmux on a private socket. One for a file of tests is enough."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tmux = Tmux(str(folder / "tmux"))
        self.tmux.run("-f", "/dev/null", "new-session", "-d", "-s", "first", "-x", "80", "-y", "24",
                      "cat")  # fmt: skip
        self.tmux.run("set-option", "-g", "remain-on-exit", "on")

    def session(self, *argv: str) -> tuple[str, str]:
        """A session that runs this; its name and its pane."""
        name = f"s{secrets.token_hex(4)}"
        pane = self.tmux.run("new-session", "-d", "-s", name, "-x", "80", "-y", "24", "-P", "-F",
                             "#{pane_id}", "--", *argv)  # fmt: skip
        return name, pane.strip()

    def sit(self, **options: float) -> Sat:
        """A fake TUI that is ready."""
        sat = self.begin(**options)
        until(lambda: sat.screen().state == "idle")
        return sat

    def begin(self, **options: float) -> Sat:
        file = self.folder / f"messages-{secrets.token_hex(4)}"
        program = str(Path(fake_tui.__file__))
        name, pane = self.session(
            sys.executable, "-I", "-S", program, str(file), json.dumps(options)
        )
        return Sat(self, name, pane, file)


@contextmanager
def serving() -> Iterator[Server]:
    # Not below pytest's folder: a socket's path may not be long.
    folder = Path(tempfile.mkdtemp(prefix="segue-tmux-"))
    server = Server(folder)
    try:
        yield server
    finally:
        subprocess.run(["tmux", "-S", server.tmux.socket, "kill-server"], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


class User:
    """Somebody with a terminal of their own, attached to a session."""

    def __init__(self, server: Server, session: str) -> None:
        env = {k: v for k, v in os.environ.items() if k not in ("TMUX", "TMUX_PANE")}
        env["TERM"] = "xterm-256color"
        argv = ["tmux", "-u", "-S", server.tmux.socket, "attach", "-t", f"={session}"]
        leader, follower = pty.openpty()
        self._client = subprocess.Popen(
            argv, stdin=follower, stdout=follower, stderr=follower, env=env, start_new_session=True
        )
        os.close(follower)
        self._tty = leader
        self._leaves = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._tmux, self._session = server.tmux, session
        until(lambda: session in server.tmux.run("list-clients", "-F", "#{session_name}"))

    def press(self, keys: str) -> None:
        os.write(self._tty, keys.encode())

    def _read(self) -> None:
        while not self._leaves.is_set():
            if select.select([self._tty], [], [], 0.05)[0]:
                try:
                    os.read(self._tty, 65536)
                except OSError:
                    return

    def leave(self) -> None:
        self._leaves.set()
        self._client.terminate()
        self._client.wait()
        self._reader.join()
        os.close(self._tty)


@contextmanager
def attached(server: Server, session: str) -> Iterator[User]:
    user = User(server, session)
    try:
        yield user
    finally:
        user.leave()
