"""One account, one limit, for sessions in terminals and runs alike: by `segue watch` as a process,
a real run, and stand-ins for the agents in tmux."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.running import QUICK, Staged, stage
from support.runs.relaying import healthy
from support.terminals import panes, terminal_standins
from support.watching import watching

from segue.core.accounts import Limit
from segue.system.accounts import Accounts, account_of

NAMES = ("HOME", "CODEX_HOME", "CODEX_API_KEY", "STANDIN_LOG", "SEGUE_HOME", "TZ")
RESET_S = 6.0
POLICY = {
    **QUICK,
    "auto_resume": True,
    "resume_places": ["window"],
    "resume_gap_s": 0,
    "min_confidence": 0.5,  # an old kernel does not tell how a process ended
}


@pytest.fixture
def s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Staged]:
    """A run of codex can be started there, and sessions of codex sit in tmux."""
    scenario = tmp_path / "healthy.toml"
    scenario.write_text(healthy(3))
    with stage(scenario, "rehearsal-codex", within=tmp_path, policy=POLICY) as found:
        found.env["CODEX_API_KEY"] = "of-a-test"
        found.env["STANDIN_LOG"] = str(tmp_path / "standin.log")
        for name in NAMES:
            monkeypatch.setenv(name, found.env[name])
        yield found


def begins(s: Staged, since: float) -> list[tuple[float, str]]:
    """Who sent a request first when, since then: sessions and the run."""
    told = [(e["at"], e["session"]) for e in terminal_standins.log() if e["event"] == "began"]
    return sorted([t for t in told if t[0] > since] + [(s.server.requests[0].at, "run")])


def replies(s: Staged, run_id: str, since: float) -> dict[str, float]:
    told = [e for e in terminal_standins.log() if e["event"] == "replied" and e["at"] > since]
    with s.store() as store:
        own = next(entry.at for entry in store.log(run_id) if entry.kind == "replied")
    return {**{e["session"]: e["at"] for e in reversed(told)}, "run": own}


def test_sessions_and_runs_of_an_account_wait_for_one_reset_and_follow_the_first_reply(
    s: Staged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = terminal_standins.install(tmp_path / "bin")
    monkeypatch.setenv("STANDIN_WORKS", "1")
    env = {**s.env, "PATH": os.environ["PATH"]}
    with panes.serving() as server, watching(s.home, env) as watch:
        for number in (1, 2):
            folder = tmp_path / f"project-{number}"
            folder.mkdir()
            words = ("sh", "-c", f"{program} 'Do it.'; sleep 600")
            server.tmux.new_window(str(folder), words, {}, "codex")
        watch.until(lambda: len(watch.notes("live")) == 2, "both sessions")
        resets_at = time.time() + RESET_S  # as another run of this account was told
        limit = Limit(resets_at=resets_at, is_met=True, seen_at=time.time(), by="run-0")
        Accounts(str(s.home)).note_limit(account_of("codex", s.env), limit)
        for each in terminal_standins.log():
            os.kill(each["pid"], signal.SIGKILL)
        killed_at = time.time()
        run = s.start("run", "--agent", "codex", s.task)
        run_id = s.until(lambda: next(iter(s.run_ids()), ""))
        assert s.end(run).code == 0
        watch.until(lambda: len(replies(s, run_id, killed_at)) == 3, "all replies")
        order = begins(s, killed_at)
        assert len(order) == 3, order
        answered = replies(s, run_id, killed_at)
        assert order[0][0] >= resets_at
        first = order[0][1]
        assert [at for at, who in order[1:] if at < answered[first]] == [], (order, answered)
