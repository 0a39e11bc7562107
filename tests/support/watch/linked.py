"""The daemon as the API, hooks and the status line see it: all of it but what it observes."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from segue.core.policy import Policy
from segue.core.sessions.forecasts.forecast import forecast
from segue.core.sessions.reading import Reading
from segue.core.sessions.remarks import LimitSeen
from segue.core.sessions.types import Process, Session, SessionState, StopSeen
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Stop
from segue.reports.figures import facts, figures
from segue.runs.clock import Clock
from segue.system.files import state
from segue.system.notices import Notice, Notices
from segue.views.report.figures import as_dict
from segue.watch.daemon import Watch
from segue.watch.log import open_log
from segue.watch.observe import endings
from segue.watch.observe.observer import Sighting
from segue.watch.rules import Rules
from segue.watch.server.answers import DaemonAnswers
from support.homes import SESSION
from support.waiting import LONG_S

OTHER = SESSION.replace("1", "2")
NOW = 1_794_800_000.0
WINDOW = 200_000


class FakeClock(Clock):
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> float:
        return self.at

    def awake(self) -> float:
        return self.at


class FakeObserver:
    """Sees what a test says."""

    def __init__(self) -> None:
        self.sessions: dict[tuple[str, str], Session] = {}
        self.notes: list[str] = []
        self.nudges: list[tuple[str, str, str]] = []
        self.degraded = ""
        self.revision = 7

    def changes(self, after: int) -> tuple[int, list[Session], list[tuple[str, str]]]:
        return self.revision, list(self.sessions.values()), [("claude", "gone")]

    def nudge(self, agent: str, session_id: str, path: str = "") -> None:
        self.nudges.append((agent, session_id, path))

    def ending_of(self, sighting: Sighting, *, hook: str = "", other_boot: bool = False) -> Stop:
        return endings.ending_of(sighting.session, sighting.ended, self.after(), hook=hook)

    def after(self, ended: Process | None = None) -> endings.After:
        return endings.After(terminal="there")

    def reload(self, policy_for: Any, homes: Any) -> None: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...


class Linked:
    """A daemon that a test leads, step by step."""

    def __init__(self, home: Path, config: str = "") -> None:
        folder = Path(os.environ["SEGUE_HOME"])
        folder.mkdir(exist_ok=True)
        (folder / "config.toml").write_text(config)
        state.make_watch_folder()
        self.home, self.clock, self.observer = home, FakeClock(), FakeObserver()
        self.said: list[str] = []
        self.told: list[Notice] = []
        self.notices = Notices(ways=[self._tell], clock=self.clock.now)
        self.watch = Watch(
            env=os.environ,
            log=open_log(folder / "watch.db")[0],
            rules=Rules(os.environ),
            say=self.said.append,
            clock=self.clock,
            notices=self.notices,
            observer=self.observer,  # type: ignore[arg-type]
        )
        self.watch.seating.learn = lambda tracked, process: False  # type: ignore[method-assign]
        self.watch.handoffs.do = lambda job: job()  # type: ignore[method-assign]
        self.watch.restore()
        self.link = DaemonAnswers(self.watch, figures=lambda since: no_figures())

    def _tell(self, notice: Notice) -> str:
        self.told.append(notice)
        return ""

    def kinds(self) -> list[str]:
        assert self.notices.wait(LONG_S)
        return [notice.kind for notice in self.told]

    def see(self, session: Session, ended: Process | None = None) -> Session:
        """The daemon sees it, as its observer would tell."""
        name = (session.agent, session.session_id)
        before = self.observer.sessions.get(name)
        self.observer.sessions[name] = session
        self.watch._take([Sighting(session, before, ended)])
        return session

    def hook(self, event: str, session_id: str = SESSION, **more: Any) -> dict[str, Any]:
        body, code = self.link.hook({"hook_event_name": event, "session_id": session_id, **more})
        assert code == 0
        found: dict[str, Any] = json.loads(body) if body else {}
        return found

    def notes(self, *kinds: str) -> list[dict[str, Any]]:
        return [note.data for note in self.link.notes(0, kinds, 1000)]

    def kept(self, session_id: str = SESSION, agent: str = "claude") -> Any:
        return self.watch.state.tracked[agent, session_id]


@pytest.fixture
def linked(own_home: Path) -> Iterator[Linked]:
    found = Linked(own_home)
    yield found
    found.notices.close()
    found.watch.state.log.close()


def at(percent: float, **more: Any) -> Session:
    """A session that is so full, with an agent behind it."""
    reading = Reading(input_tokens=int(WINDOW * percent / 100), window_tokens=WINDOW)
    known: dict[str, Any] = {
        "agent": "claude",
        "session_id": SESSION,
        "path": "/p/s.jsonl",
        "cwd": "/p",
        "model": "claude-sonnet-4-5",
        "state": SessionState.WAITING_FOR_USER,
        "last_at": NOW,
        "reading": reading,
        "zone": reading.zone(Policy()),
        "forecast": forecast(reading, None, Policy()),
        "process": Process(agent="claude", pid=os.getpid(), started_at=NOW - 60),
    }
    return Session(**(known | more))


def context_of(reply_: dict[str, Any]) -> str:
    return str(reply_.get("hookSpecificOutput", {}).get("additionalContext", ""))


def limited(**more: Any) -> Session:
    stop = StopSeen(reason=StopReason.RATE_LIMIT, confidence=0.95, retry_at=NOW + 3600)
    limit = {"five_hour": LimitSeen(resets_at=NOW + 3600, rejected=True)}
    return at(40, state=SessionState.WAITING_FOR_LIMIT, stop=stop, limits=limit, **more)


def no_figures() -> dict[str, Any]:
    return as_dict(figures(facts(None, None)), Counter(), None, NOW)
