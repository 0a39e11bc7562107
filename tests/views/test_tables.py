"""The table of sessions at the widths that terminals have."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from support.homes import START, claude_session, prompt, reply

from segue.core.sessions.forecasts.forecast import Ahead, Forecast
from segue.core.sessions.reading import Zone
from segue.core.sessions.types import RunSeen, Session, SessionState
from segue.views.tables import handoff, table_by_run

NAMES = ("11111111-2222-4333-8444-555555555555", "22222222-2222-4333-8444-555555555555")


@pytest.fixture
def some(own_home: Path) -> Path:
    """Two sessions: one that grows, and one that waits for its limit."""
    model = "claude-opus-4-5-20260101"
    for place, name in enumerate(NAMES):
        cwd = f"/home/dev/{('shop', 'a-project-with-a-long-name')[place]}"
        lines = []
        for number in range(12):
            at = START + 60 * number
            lines += [
                prompt(at=at, cwd=cwd, session=name),
                reply(
                    12 * place + number,
                    100_000 + 1_000 * number,
                    at=at + 30,
                    cwd=cwd,
                    session=name,
                    model=model,
                    stop=("end_turn", "refusal")[place],
                ),
            ]
        claude_session(own_home, *lines, session=name, slug=f"-p{place}")
    return own_home


def shown(width: int) -> list[str]:
    """What `segue sessions` draws on a terminal of this width."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    clean = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, "-m", "segue", "sessions"],
        stdin=side,
        stdout=side,
        env={**clean, "TERM": "xterm-256color"},
    ):
        os.close(side)
        said = b""
        while True:
            try:
                piece = os.read(main, 65_536)
            except OSError:  # Linux's way to say that nobody writes any more
                break
            if not piece:
                break
            said += piece
    os.close(main)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode()).replace("\r", "").splitlines()


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_project_agent_percent_state_and_session_are_there_at_any_usual_width(
    width: int, some: Path
) -> None:
    head, *rows = shown(width)
    assert len(rows) == 2
    assert max(map(len, (head, *rows))) <= width
    assert head.split()[:2] == ["project", "agent"]
    (shop,) = [row for row in rows if row.startswith("shop ")]
    (other,) = [row for row in rows if row.startswith("a-project-wit")]
    for row, percent, state, name in (
        (shop, " 56% ", " completed ", NAMES[0][:8]),
        (other, " 56% ", " refusal ", NAMES[1][:8]),
    ):
        assert " claude " in row
        assert percent in row
        assert state in row
        assert row.rstrip().endswith(name)
        assert "█" in row


@pytest.mark.parametrize(
    ("width", "gone"),
    [
        (160, ""),
        (100, "growth model"),
        (80, "growth model active"),
        (60, "growth model active handoff"),
    ],
)
def test_a_narrow_terminal_has_fewer_columns_and_not_narrower_ones(
    width: int, gone: str, some: Path
) -> None:
    head = shown(width)[0].split()
    assert not set(gone.split()) & set(head)
    kept = {"growth", "model", "active", "handoff"} - set(gone.split())
    assert kept <= set(head)


@pytest.mark.parametrize(
    ("turns", "said"), [(0.6, "1 turn"), (1.0, "1 turn"), (1.4, "1 turn"), (2.0, "2 turns")]
)
def test_one_turn_is_not_called_turns(turns: float, said: str) -> None:
    ahead = Ahead(at_tokens=170_000, tokens=1_000, turns=turns)
    session = Session(
        agent="claude",
        session_id="s",
        path="/s",
        zone=Zone.NORMAL,
        state=SessionState.WORKING,
        forecast=Forecast(zone=Zone.NORMAL, zones={Zone.HANDOFF: ahead}, full=Ahead()),
    )
    assert handoff(session) == said


def test_what_is_opened_again_after_its_run_is_its_users() -> None:
    ahead = Ahead(at_tokens=170_000, tokens=1_000, turns=2.0)
    forecast = Forecast(zone=Zone.NORMAL, zones={Zone.HANDOFF: ahead}, full=Ahead())
    over = RunSeen(id="run-1", state="done", is_final=True)
    going = RunSeen(id="run-2", state="working", is_driven=True)

    def session(name: str, run: RunSeen | None, state: SessionState, to: str = "") -> Session:
        return Session(
            agent="claude",
            session_id=name,
            path=f"/{name}",
            run=run,
            state=state,
            handed_over_to=to,
            forecast=forecast,
        )

    found = {
        "last": session("last", over, SessionState.STOPPED),
        "reopened": session("reopened", over, SessionState.WAITING_FOR_USER, "last"),
        "ending": session("ending", going, SessionState.WORKING, "current"),
        "current": session("current", going, SessionState.GONE),
        "alone": session("alone", None, SessionState.GONE),
    }
    assert {name: handoff(each) for name, each in found.items()} == {
        "last": "",
        "reopened": "2 turns",
        "ending": "",
        "current": "2 turns",
        "alone": "",
    }
    console = Console(file=StringIO(), width=120)
    console.print(table_by_run([*found.values()], 0.0, 120))
    shown = [line.split()[-1] for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert shown == ["session", "run-1", "reopened", "run-2", "alone"]
