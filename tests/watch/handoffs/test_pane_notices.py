"""Zones of sessions without hooks: told in the pane, by the real daemon, to a user who is attached.
And of sessions whose process nobody sees: from their files."""

import os
import pty
import select
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.homes import claude_session, prompt, reply
from support.terminals.panes import attached, serving
from support.terminals.tui import Tui, open_tui
from support.watching import LIMIT_S, begin_work, watching

from segue.core.policy import Policy
from segue.core.sessions.reading import Reading, Zone
from segue.drill.scenarios.types import Context, Job, Scenario
from segue.watch.handoffs.pane_notices import OPTION, message

CONFIG = """
[policy]
monitor_mark = 0.10
warning_mark = 0.20
critical_mark = 0.40
soft_mark = 0.95
hard_mark = 0.95
"""
SESSION = "11111111-2222-4333-8444-555555555555"


@pytest.fixture(autouse=True)
def utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


@contextmanager
def somebody_looks(tui: Tui) -> Iterator[list[str]]:
    """A user's terminal, attached to the agent's pane; what it was sent."""
    session = (tui.place.tmux("list-sessions", "-F", "#{session_name}") or "").split()[0]
    terminal, inside = pty.openpty()
    client = subprocess.Popen(
        ["tmux", "-N", "-u", "-S", tui.place.socket, "attach", "-t", session],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env={"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
        start_new_session=True,
    )
    os.close(inside)
    said: list[str] = []
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            if select.select([terminal], [], [], 0.05)[0]:
                try:
                    said.append(os.read(terminal, 65536).decode("utf-8", "replace"))
                except OSError:
                    return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield said
    finally:
        over.set()
        client.terminate()
        client.wait()
        reader.join()
        os.close(terminal)


def option(tui: Tui) -> str:
    return (tui.place.tmux("show-options", "-pqv", "-t", tui.pane, OPTION) or "").strip()


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode"])
def test_an_agent_without_hooks_is_reported_in_its_pane_and_nothing_is_typed(
    agent: str, tmp_path: Path
) -> None:
    job = Job(steps=6, step_s=1.0, output_bytes=8_000)
    scenario = Scenario(about="", job=job, context=Context(fills_after_steps=9, refuses=False))
    with (
        open_tui(agent, tmp_path, scenario) as tui,
        somebody_looks(tui) as said,
        watching(tmp_path / "segue", tui.env, config=CONFIG) as watch,
    ):
        begin_work(tui)

        def shown(text: str) -> bool:
            return text in "".join(said)

        watch.until(lambda: shown("segue: context at"), "the first message")
        watch.until(lambda: shown("then hand over (segue handoff)"), "the message of critical")
        zones = [note.data["zone"] for note in watch.notes("crossing")]
        assert zones[:3] == ["monitor", "warning", "critical"]
        assert option(tui).endswith(" critical")
        tui.wait_for(lambda s: s.state == "idle", LIMIT_S)
        assert tui.screen().draft == ""
        files = [file for file in Path(tui.home).rglob("*") if file.is_file()]
        held = [file.read_bytes() for file in files if tui.session().encode() in file.read_bytes()]
        assert held
        assert not any(b"segue: context" in data for data in held)  # it cost no turn
        assert watch.stop() == 0
        assert option(tui) == ""


def test_a_session_whose_process_is_not_seen_has_its_zones_from_its_file(
    tmp_path: Path, own_home: Path
) -> None:
    """As of an agent in a container: its home is shared, its processes are not."""
    at = time.time()
    cwd = str(own_home)
    lines = [prompt(at=at, cwd=cwd), reply(1, 20_000, at=at, cwd=cwd)]
    path = claude_session(own_home, *lines)
    with watching(tmp_path / "segue", {"HOME": str(own_home)}) as watch:
        watch.until(lambda: watch.remote.get("/v1/sessions")["sessions"], "the session")
        for number, used in enumerate((70_000, 110_000, 150_000), start=2):
            with path.open("a") as file:
                file.write(reply(number, used, at=time.time(), cwd=cwd) + "\n")
            watch.until(lambda n=number: len(watch.notes("crossing")) >= n - 1, "zone")  # type: ignore[misc]
        zones = [note.data["zone"] for note in watch.notes("crossing")]
        assert zones == ["monitor", "warning", "critical"]
        watch.until(lambda: watch.notes("reminder"), "its reminder")


def test_a_message_is_shown_as_it_is_and_the_pane_is_not_typed_into() -> None:
    text = "segue: 76% of #{pane_id} #(touch canary) %H;"
    with serving() as server:
        sat = server.begin()
        with attached(server, sat.session):
            server.tmux.show_message(sat.pane, text, shown_s=60)
            log = server.tmux.run("show-messages")
        assert text.rstrip(";") in log
        assert sat.screen().draft == ""
        assert not sat.messages()


def test_what_is_told_names_the_zone_and_what_follows() -> None:
    reading = Reading(input_tokens=110_000, window_tokens=200_000)
    policy = Policy()
    assert "below 5,000 tokens" in message(reading, Zone.WARNING, policy)
    assert "segue handoff" in message(reading, Zone.CRITICAL, policy)
    assert message(reading, Zone.MONITOR, policy) == ""
