"""What people see of a run that another machine drives: its agent's words, its answer, its files
and its diff; never a secret, and never too much."""

import json
import os
import random
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.fleet.machines import SEGUE, TestMachine
from support.fleet.postgres import Postgres, postgres
from support.waiting import until
from support.watch.dashboards import dashboard

from segue import fleet
from segue.cli import cli
from segue.errors import ConfigError
from segue.fleet import machines, output
from segue.fleet.output import Publisher
from segue.fleet.store import PostgresStore
from segue.runs.folders import RunFolder
from segue.runs.store import leases
from segue.runs.store.port import run_key
from segue.testing.stores import make_holder, make_run

LONG_S = 90.0
COMMAND = json.dumps(["sh", "-c", 'eval "$0"', "{prompt}"])
AGENT = f'[run]\nagent = "mine"\n[agents.mine]\ncommand = {COMMAND}\n'
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as found:
        yield found


@pytest.fixture
def url(server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of an empty fleet; whoever looks has a HOME of its own."""
    server.sql("DROP SCHEMA IF EXISTS segue CASCADE")
    monkeypatch.setenv("SEGUE_FLEET", server.url())
    place = tmp_path / "home" / "segue"
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.toml").write_text(AGENT)
    monkeypatch.chdir(tmp_path)
    return server.url()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    who = ("-c", "user.name=me", "-c", "user.email=me@example.invalid")
    (folder / "a.txt").write_text("one\n")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "first")):
        subprocess.run(["git", *who, *words], cwd=folder, check=True)
    return folder


@pytest.fixture
def far(tmp_path: Path, url: str) -> Iterator[TestMachine]:
    made = TestMachine.make(tmp_path / "far", url, AGENT)
    yield made
    made.power_cut()


def segue(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def test_a_run_on_another_machine_is_seen_from_here_with_its_words_files_and_diff(
    repo: Path, far: TestMachine, url: str, tmp_path: Path
) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    script = (
        f"echo 'I begin with '{SECRET[:4]}''{SECRET[4:]}; echo two >> a.txt; "
        f"while [ -e {hold} ]; do sleep 0.1; done; echo 'All is well.'"
    )
    segue("submit", "--repo", f"file://{repo}", script)
    far.start("worker", "--until-empty")
    run = until(lambda: json.loads(segue("runs", "--json"))["runs"])[0]["run"]
    until(lambda: "I begin with" in segue("logs", run, "--transcript"))
    # While it works: the words come, and nothing of its own output is here to be read.
    followers = [
        subprocess.Popen(
            [*SEGUE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for words in (("logs", run, "-f"), ("logs", run, "-f", "--transcript"), ("attach", run))
    ]
    refused = segue("logs", run, "--agent-output", code=2)
    assert "what the agent printed stays there" in refused
    assert f"segue logs {run} --transcript" in refused
    assert "run this command there" in segue("restore", run, code=2)
    with dashboard(os.environ) as shown:
        shown.sign_in()
        until(lambda: "I begin with" in shown.ask(f"/runs/{run}").text)
        hold.unlink()
        told = [follower.communicate(timeout=LONG_S) for follower in followers]
        page = until(lambda: text if "+two" in (text := shown.ask(f"/runs/{run}").text) else "")
    for said, _ in told[:2]:
        assert said.index("I begin with") < said.index("All is well.")
    assert told[2][0].endswith("All is well.\n")  # of `attach`, the answer
    assert [follower.returncode for follower in followers] == [0, 0, 0]
    assert "done" in told[0][0]
    # When it is over: what came of it.
    report = json.loads(segue("report", run, "--json"))["runs"][0]
    assert report["answer"].endswith("All is well.")
    assert [each["path"] for each in report["files"]] == ["a.txt"]
    assert "+two" in segue("diff", run)
    assert json.loads(segue("show", run, "--json"))["answer"].endswith("All is well.")
    assert "All is well." in page
    everything = repr((told, page, report, segue("report", run), segue("logs", run)))
    assert SECRET not in everything
    with PostgresStore(url) as store:
        for table in ("words", "result"):
            kept = store.rows(f"SELECT data FROM segue.{table}")
            assert kept
            assert all(SECRET.encode() not in zlib.decompress(data) for (data,) in kept)


class Told:
    """A run whose agent prints what the test says, and a clock by hand."""

    def __init__(self, url: str) -> None:
        self.store = PostgresStore(url)
        self.run = make_run(agent="claude", leg=1)
        self.now = 0.0
        RunFolder(self.run.id).leg(1)
        self.publisher = self.another()

    def another(self) -> Publisher:
        """As the next process does after a kill."""
        return Publisher(self.store, {}, days=30, clock=lambda: self.now)

    def says(self, *texts: str) -> None:
        for text in texts:
            content = [{"type": "text", "text": text}]
            record = {"type": "assistant", "message": {"role": "assistant", "content": content}}
            with (RunFolder(self.run.id).leg(1) / "stdout").open("a") as file:
                file.write(json.dumps(record) + "\n")

    def look(self) -> None:
        self.now += output.EVERY_S
        self.publisher.see(self.run)

    def words(self) -> list[str]:
        return [
            each.text
            for piece in output.words(self.store, self.run.id)
            for each in piece.utterances
        ]


@pytest.fixture
def told(url: str) -> Iterator[Told]:
    made = Told(url)
    yield made
    made.store.close()


def test_a_process_that_was_killed_is_followed_by_one_that_tells_nothing_twice(told: Told) -> None:
    told.says("one", "two")
    told.look()
    told.says("three")
    told.publisher = told.another()
    told.look()
    told.says("four")
    told.publisher.see(told.run)  # too soon
    assert told.words() == ["one", "two", "three"]
    told.look()
    assert told.words() == ["one", "two", "three", "four"]
    assert len(output.words(told.store, told.run.id, after=2)) == 1


def test_of_a_run_that_says_very_much_the_newest_words_stay_and_no_more_than_fits(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "MAX_RUN_BYTES", 20_000)
    for number in range(40):
        told.says(f"{number} " + random.Random(number).randbytes(1_000).hex())
        told.look()
    ((kept,),) = told.store.rows("SELECT sum(bytes) FROM segue.words")
    assert 10_000 < kept <= 20_000
    numbers = [int(text.split()[0]) for text in told.words()]
    assert numbers == list(range(numbers[0], 40))
    told.says("x" * 100_000)
    told.look()
    assert len(told.words()[-1]) == 8_000  # one text
    told.says(*(f"{number} " + "y" * 7_000 for number in range(50)))
    told.look()
    last = output.words(told.store, told.run.id)[-1].utterances
    assert last[-1].text.startswith("… ")
    assert sum(len(each.text) for each in last) <= output.MAX_PIECE_CHARS
    told.says(*("z" * 500_000 for _ in range(6)))  # faster than it is told
    told.look()
    assert "… some of the output is left out here" in told.words()


def test_words_go_with_their_run_or_after_the_days_that_the_config_says(told: Told) -> None:
    told.says("one")
    told.look()
    told.store.rows("UPDATE segue.words SET at = at - interval '31 days'")
    told.publisher.finish(told.run)
    assert told.words() == []
    assert output.result(told.store, told.run.id) is not None
    told.store.create(told.run)
    lease = told.store.acquire(run_key(told.run.id), leases.me(), 0.0)
    told.store.forget(told.run.id, epoch=lease.epoch)
    assert output.result(told.store, told.run.id) is None
    place = Path(os.environ["HOME"], "segue", "config.toml")
    place.write_text("[fleet]\noutput_days = 0\n")
    assert output.publisher(told.store, {}) is None
    place.write_text('[fleet]\noutput_days = "x"\n')
    with pytest.raises(ConfigError, match=r"output_days in \[fleet\] must be a number of days"):
        output.publisher(told.store, {})


def test_a_run_whose_machine_is_silent_is_driven_by_nobody(told: Told) -> None:
    holder = make_holder(machine="far", boot="another")
    told.store.create(told.run)
    told.store.acquire(run_key(told.run.id), holder, 0.0)
    assert fleet.driver(told.store, told.run.id) == holder  # it has no worker: nothing is known
    machines.beat(told.store, "far", lease_s=60)
    assert fleet.driver(told.store, told.run.id) == holder
    told.store.rows("UPDATE segue.machine SET beat_at = now() - interval '61 seconds'")
    assert fleet.driver(told.store, told.run.id) is None
    told.says("I live.")
    told.look()
    assert fleet.driver(told.store, told.run.id) == holder
