"""Nothing that segue writes about a session holds a secret: seen through the commands, with an
agent that prints every kind. What the agent wrote itself is kept as it came."""

import json
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.hostile.secret_kinds import Kind, kinds

from segue.core.secrets.redact import redact

AGENT = Path(__file__).parents[2] / "support/agents/leaky_agent.py"
RAW = ("stdout", "stderr")
"""The agent's own bytes."""


@dataclass
class Place:
    root: Path

    @property
    def home(self) -> Path:
        return self.root / "segue"

    def segue(self, *words: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-c", "from segue.start import main; main()", *words],
            cwd=self.root / "project",
            env={
                "PATH": "/usr/bin:/bin", "HOME": str(self.root), "SEGUE_HOME": str(self.home),
                "CLAUDE_CONFIG_DIR": str(self.root / "claude"), "LANG": "C.UTF-8",
            },
            capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert not ok or done.returncode == 0, done
        return done

    def written(self) -> dict[str, bytes]:
        """All that segue keeps, but for the agent's own bytes."""
        return {
            str(path.relative_to(self.home)): path.read_bytes()
            for path in sorted(self.home.rglob("*"))
            if path.is_file() and path.name not in RAW
        }


def planted() -> list[Kind]:
    return [*kinds(), *kinds(file="second.txt")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return leaky(tmp_path_factory.mktemp("leaky"))


def leaky(root: Path) -> Place:
    """A run of two sessions, over."""
    found = Place(root)
    (root / "project").mkdir()
    found.home.mkdir()
    texts = [kind.text for kind in planted()]
    (root / "texts.json").write_text(json.dumps(texts))
    command = json.dumps([sys.executable, str(AGENT), str(root / "texts.json")])
    (found.home / "config.toml").write_text(
        f'[agents.leaky]\ncommand = {command}\nlike = "claude"\n'
    )
    done = found.segue("run", "--agent", "leaky", "Tidy up.")
    assert "All done." in done.stdout
    return found


def test_nothing_that_segue_writes_about_a_session_holds_a_secret(place: Place) -> None:
    files = place.written()
    assert {"runs.db"} <= set(files)
    for kept in ("answer.md", "compacted", "prompt.md"):
        assert any(name.endswith(f"/{kept}") for name in files), kept
    raw = b"".join(path.read_bytes() for path in place.home.rglob("stdout"))
    found: dict[str, list[str]] = {}
    tried = 0
    for kind in planted():
        for secret in kind.secrets:
            bare = secret.encode()
            if len(bare) < 8 or json.dumps(secret)[1:-1].encode() not in raw:
                continue
            tried += 1
            forms = {bare, json.dumps(secret)[1:-1].encode()}
            where = [name for name, data in files.items() if any(form in data for form in forms)]
            if where:
                found[f"{kind.vendor}: {kind.name}"] = where
    assert tried > 400
    assert len(found) <= 0.01 * tried, found
    with sqlite3.connect(place.home / "runs.db") as db:
        (checkpoints,) = db.execute("SELECT count(*) FROM checkpoint").fetchone()
        assert checkpoints


def test_the_answer_on_stdout_is_the_agents_and_the_kept_one_is_redacted(place: Place) -> None:
    (answer,) = place.home.glob("runs/*/leg-002/answer.md")
    assert "[redacted]" in answer.read_text()


@pytest.mark.parametrize("words", [("show",), ("show", "--json"), ("logs",), ("logs", "--json")])
def test_no_command_prints_what_was_redacted(place: Place, words: tuple[str, ...]) -> None:
    run = place.segue("runs", "--json").stdout
    name = json.loads(run)["runs"][0]["run"]
    done = place.segue(words[0], name, *words[1:])
    known = [kind for kind in planted() if not kind.survivors(redact(kind.text)[0])]
    secrets = [secret for kind in known for secret in kind.secrets if len(secret) > 10]
    assert [secret for secret in secrets if secret in done.stdout] == []


# Forgetting


def name_of(place: Place) -> str:
    listed = json.loads(place.segue("runs", "--json").stdout)
    return str(listed["runs"][0]["run"])


def test_a_run_that_is_forgotten_leaves_no_byte(tmp_path: Path) -> None:
    place = leaky(tmp_path)
    run = name_of(place)
    with sqlite3.connect(place.home / "runs.db") as db:
        sessions = [name for (name,) in db.execute("SELECT DISTINCT session_id FROM leg")]
    would = place.segue("forget", "--dry-run", run).stdout
    assert run in would
    assert (place.home / "runs" / run).exists()
    done = place.segue("forget", run)
    assert f"{run} is forgotten" in done.stdout
    assert not (place.home / "runs" / run).exists()
    for name, data in place.written().items():
        if name == "config.toml":
            continue
        for trace in (run, "Tidy up.", *filter(None, sessions), "All done."):
            assert trace.encode() not in data, (name, trace)
    assert place.segue("runs", "--json").stdout.count("run-") == 0
    again = place.segue("forget", run, ok=False)
    assert again.returncode == 2
    assert again.stderr == f"segue: no run is called '{run}'; `segue runs` lists all\n"


def test_the_agents_own_session_is_named_and_stays(tmp_path: Path) -> None:
    place = leaky(tmp_path)
    with sqlite3.connect(place.home / "runs.db") as db:
        (session,) = db.execute("SELECT session_id FROM leg ORDER BY leg LIMIT 1").fetchone()
        (cwd,) = db.execute("SELECT cwd FROM run").fetchone()
        db.execute("UPDATE leg SET session_id = session_id")
    folder = tmp_path / "claude" / "projects" / "".join(c if c.isalnum() else "-" for c in cwd)
    folder.mkdir(parents=True)
    (folder / f"{session}.jsonl").write_text("{}\n")
    done = place.segue("forget", "--all")
    assert str(folder / f"{session}.jsonl") in done.stdout
    assert (folder / f"{session}.jsonl").exists()


def test_what_is_not_over_or_too_young_is_not_forgotten(tmp_path: Path) -> None:
    place = leaky(tmp_path)
    run = name_of(place)
    assert place.segue("forget", "--older-than", "30d").stderr == "nothing to forget\n"
    with sqlite3.connect(place.home / "runs.db") as db:
        (data,) = db.execute("SELECT data FROM snapshot").fetchone()
        waiting = {**json.loads(data), "state": "waiting"}
        db.execute("UPDATE snapshot SET data = ?", (json.dumps(waiting),))
    refused = place.segue("forget", run, ok=False)
    assert refused.returncode == 2
    assert refused.stderr == (
        f"segue: {run} has not ended (waiting); to end it: segue cancel {run}\n"
    )
    assert (place.home / "runs" / run).exists()
    with sqlite3.connect(place.home / "runs.db") as db:
        db.execute("UPDATE snapshot SET data = ?", (data,))
        db.execute("UPDATE event SET at = at - 40 * 86400")
    assert json.loads(place.segue("forget", "--older-than", "30d", "--json").stdout)["forgotten"]
    assert not (place.home / "runs" / run).exists()


@pytest.mark.parametrize("words", [(), ("--all", "run-1"), ("--older-than", "soon"), ("run-none",)])
def test_a_mistake_is_one_line(place: Place, words: tuple[str, ...]) -> None:
    done = place.segue("forget", *words, ok=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_what_an_earlier_version_kept_is_redacted_once(tmp_path: Path) -> None:
    place = leaky(tmp_path)
    secret = "".join(("gh", "p_", "a1B2" * 9))
    with sqlite3.connect(place.home / "runs.db") as db:
        db.execute("ALTER TABLE run DROP COLUMN origin")  # as the first version made it
        db.execute("ALTER TABLE leg DROP COLUMN agent")
        db.execute("PRAGMA user_version = 1")
        checkpoint = {"task": f"use {secret}", "last_words": f"it is {secret}"}
        db.execute("UPDATE checkpoint SET data = ?", (json.dumps(checkpoint),))
        (data,) = db.execute("SELECT data FROM snapshot").fetchone()
        old = {**json.loads(data), "failure": f"failed: {secret}", "flags": ["--x", secret]}
        db.execute("UPDATE snapshot SET data = ?", (json.dumps(old),))
    place.segue("runs")
    with sqlite3.connect(place.home / "runs.db") as db:
        (kept,) = db.execute("SELECT data FROM checkpoint").fetchone()
        assert json.loads(kept) == {"task": f"use {secret}", "last_words": "it is [redacted]"}
        (data,) = db.execute("SELECT data FROM snapshot").fetchone()
        assert json.loads(data)["failure"] == "failed: [redacted]"
        assert json.loads(data)["flags"] == ["--x", secret]
    assert all(f"it is {secret}".encode() not in data for data in place.written().values())
