"""A limited session in tmux is taken over by another agent: by `segue watch` as a process, in real
tmux, with stand-ins for the agents."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.terminals import panes, terminal_standins
from support.terminals.terminal_standins import LimitedOpencode
from support.watching import Watching, watching

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

RUN = '[run]\nagent = ["opencode", "codex"]\n[run.flags]\ncodex = ["--search", "--oddly"]\n'
POLICY = "[policy]\nreset_jitter_min_s = 0\nreset_jitter_max_s = 0\nauto_resume = true\n"
RELAY = f"{POLICY}relay = true\n{RUN}"


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="segue-") as folder:
        monkeypatch.setenv("SEGUE_HOME", folder)
        yield Path(folder)


class Place:
    """opencode at work in a pane, codex installed and signed in."""

    def __init__(self, own_home: Path, server: panes.Server) -> None:
        self.own_home, self.server = own_home, server
        self.project = own_home / "project"
        self.project.mkdir()
        (self.project / "CLAUDE.md").write_text("Use tabs.")
        self.opencode = LimitedOpencode(own_home, self.project)
        self.opencode.open(server, own_home / "opencode-bin")

    @property
    def env(self) -> dict[str, str]:
        names = ("HOME", "PATH", "CODEX_HOME", "CODEX_API_KEY", "STANDIN_LOG")
        return {name: os.environ[name] for name in names}

    def windows(self) -> list[str]:
        return self.server.tmux.run("list-windows", "-a", "-F", "#{window_name}").split()

    def limited(self, watch: Watching) -> None:
        """The next message is refused, for two hours."""
        self.opencode.refuse(2)
        watch.until(lambda: watch.notes("stop"), "its stop")


@pytest.fixture
def place(own_home: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    program = terminal_standins.install(own_home / "bin")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CODEX_HOME", str(own_home / ".codex"))
    monkeypatch.setenv("CODEX_API_KEY", "of-a-test")
    monkeypatch.setenv("STANDIN_LOG", str(own_home / "standin.log"))
    with panes.serving() as server:
        yield Place(own_home, server)


def verdicts(watch: Watching) -> list[str]:
    return [note.data["verdict"] for note in watch.notes("wake")]


def test_a_limited_session_continues_with_another_agent_in_a_new_window_once(
    place: Place, home: Path
) -> None:
    with watching(home, place.env, config=RELAY) as watch:
        place.limited(watch)
        watch.until(lambda: verdicts(watch)[-1:] == ["relayed"], "the relay")
        (began,) = [each for each in terminal_standins.log() if each["event"] == "began"]
        assert began["arguments"][:-1] == ["--search", "--"]  # what it takes in a terminal
        told = began["prompt"]
        assert told.startswith("CONTINUING FROM A HANDOFF")
        assert "done by another agent (opencode); you are codex" in told
        assert "instructions are also in CLAUDE.md" in told
        (document,) = (place.project / ".segue" / "handoffs").glob("handoff-*.md")
        assert str(document) in told
        assert "under the blue stone" in document.read_text()
        assert "codex" in place.windows()
        assert "opencode" in place.windows()  # it sits there as it did
        lost = "MCP servers, skills and the agent's own memory files"
        watch.until(lambda: lost in watch.said.read_text(), "what does not carry over")
        watch.kill()
        watch.start()  # the next daemon knows that it was taken over
        watch.until(lambda: watch.remote.get("/v1/sessions")["sessions"], "the sessions")
        assert watch.remote.get("/v1/status")["waiting"] == []
        assert place.windows().count("codex") == 1
        assert "codex took over" in watch.segue("notes")


@pytest.mark.parametrize("config", [POLICY + RUN, "[policy]\nrelay = true\n" + RUN])
def test_nothing_is_relayed_unless_the_user_allows_both(
    place: Place, home: Path, config: str
) -> None:
    (place.project / ".segue.toml").write_text("[policy]\nrelay = true\nauto_resume = true\n")
    with watching(home, place.env, config=config) as watch:
        place.limited(watch)
        watch.until(lambda: verdicts(watch), "a decision")
        assert verdicts(watch)[-1] == ("wait" if "auto_resume" in config else "leave")
        assert terminal_standins.log() == []


def test_an_agent_that_cannot_be_begun_leaves_the_session_to_its_own_agent(
    place: Place, home: Path
) -> None:
    false = shutil.which("false") or "/bin/false"
    (place.own_home / "bin" / "codex").unlink()
    (place.own_home / "bin" / "codex").symlink_to(false)
    with watching(home, place.env, config=RELAY) as watch:
        place.limited(watch)
        watch.until(lambda: verdicts(watch)[-2:] == ["failed", "wait"], "the wait", 90)
        assert [verdict for verdict in verdicts(watch) if verdict == "relay"] == ["relay"]


def test_a_limited_account_takes_nothing_over(place: Place, home: Path) -> None:
    from segue.core.accounts import Limit
    from segue.system.accounts import Accounts, account_of

    limit = Limit(resets_at=4e9, is_met=True, seen_at=1.0, source="run", by="run-1")
    Accounts(str(home)).note_limit(account_of("codex", place.env), limit)
    with watching(home, place.env, config=RELAY) as watch:
        place.limited(watch)
        watch.until(lambda: verdicts(watch), "a decision")
        assert verdicts(watch) == ["wait"]
