"""Pages say what the commands say, of whatever is in the files."""

import html
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from support.homes import prompt, reply
from support.running import PATIENT, stage
from support.waiting import until
from support.watch.dashboards import dashboard

from segue.core.sessions.reading import Reading
from segue.core.sessions.types import Session
from segue.dashboard import sessions_page, sources
from segue.dashboard.pages import Pages
from segue.errors import StateError
from segue.system.files import state
from segue.views import tables

HOSTILE = {
    "script": "<script>alert(1)</script>",
    "attribute": '"onerror=alert(1) x="',
    "terminal": "\x1b[31mred\x1b]0;t\x07",
    "direction": "a\u202eb\u2066c",
    "half": "x\ud800y",
    "long": "A" * 1_000_000,
    "template": "{{ 7 * 7 }}{% raw %}",
}


def test_hostile_names_and_words_show_as_text_on_every_page(own_home: Path) -> None:
    now = time.time()
    for number, (name, value) in enumerate(HOSTILE.items()):
        folder = own_home / f".claude/projects/-{name}"
        folder.mkdir(parents=True)
        session = f"{number}1111111-2222-4333-8444-555555555555"
        rows = [
            prompt(value, at=now - 9, session=session, cwd=f"/x/{value}"),
            reply(1, 50_000, at=now - 8, session=session, cwd=f"/x/{value}", model=value),
        ]
        (folder / f"{session}.jsonl").write_text("\n".join(rows) + "\n")
    (own_home / "segue").mkdir()
    with dashboard({"HOME": str(own_home), "SEGUE_HOME": str(own_home / "segue")}) as shown:
        shown.sign_in()
        front = shown.page("/")
        keys = re.findall(r'href="(/sessions/\w+)"', front)
        pages = [front, *(shown.page(key) for key in keys)]
    assert len(keys) == len(HOSTILE)
    for page in pages:
        assert len(page) < 200_000
        assert "<script>alert" not in page
        assert not re.search(r"<[^>]*\sonerror=", page)
        assert not re.search("[\x1b\x07\u202e\u2066\ud800]", page)
        assert "49" not in html.unescape(page).partition("{{ 7 * 7 }}")[0][-5:]
    assert "&lt;script&gt;alert(1)" in front
    assert "{{ 7 * 7 }}" in html.unescape(front)


def test_a_run_is_reported_with_its_legs_decisions_checkpoint_and_answer(tmp_path: Path) -> None:
    with stage("three-exhaustions", within=tmp_path) as s:
        assert s.run().code == 0
        (run_id,) = s.run_ids()
        shown_by_command = json.loads(s.segue("show", run_id, "--json").stdout)
        report = json.loads(s.segue("report", run_id, "--json").stdout)
        figures = json.loads(s.segue("report", "--figures", "--json").stdout)
        assert s.segue("submit", "fix the <flaky> tests").code == 0
        with dashboard(s.env) as shown:
            shown.sign_in()
            run = html.unescape(shown.page(f"/runs/{run_id}"))
            listed = html.unescape(shown.page("/runs"))
            history = html.unescape(shown.page("/history"))
            log = shown.page("/log")
            missing = shown.ask("/runs/run-none")
    reasons = {each["reason"] for each in shown_by_command["decisions"] if each["reason"]}
    assert reasons
    assert all(reason in run for reason in reasons)
    legs = run.partition('aria-label="Legs"')[2].partition("</table>")[0]
    assert legs.count('<th scope="row">') == len(shown_by_command["leg_list"])
    # What it did, as the report has it.
    (told,) = report["runs"]
    assert len(told["files"]) > 1
    for file in told["files"]:
        assert file["path"] in run
        assert f"+++ b/{file['path']}" in run
    assert all(commit["subject"] in run for commit in told["commits"])
    (spend,) = told["spend"]
    assert spend["model"] in run.partition('aria-label="Spend by model"')[2]
    # And how well handoffs work.
    assert len(figures["figures"]) > 10
    for figure in figures["figures"]:
        assert figure["definition"] in history
        assert figure["target"] in history
    assert shown_by_command["answer"].strip() in run
    assert "Checkpoint" in run
    assert "done" in listed
    queue = listed.partition("Queue")[2].partition("Newest runs")[0]
    assert "fix the <flaky> tests" in queue
    assert "queued" in queue
    assert run_id in listed
    assert "handed over" in history
    assert "No notes yet" in log
    assert missing.status == 404


def test_actions_do_what_the_commands_do_and_say_what_they_say(tmp_path: Path) -> None:
    with stage("silent-hang", within=tmp_path, policy=PATIENT) as s:
        _, run_id = s.new_run()
        with dashboard(s.env) as shown:
            shown.sign_in()
            refused = shown.act("resume", run_id)
            ended = shown.act("cancel", run_id)
            state = s.state(run_id)
            again = shown.act("resume", run_id)
            until(lambda: s.state(run_id) != "cancelled")
            shown.act("cancel", run_id)
    assert not refused["ok"]
    assert f"{run_id} is already driven by process" in refused["said"]
    assert ended["ok"]
    assert f"{run_id} is cancelled" in ended["said"]
    assert state == "cancelled"
    assert again["ok"], again
    assert again["command"] == f"segue resume --detach {run_id}"


def test_the_commands_of_the_docs_print_one_url(own_home: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/dashboard.md").read_text()
    block = re.search(r"```sh\n(.*?)```", page, re.S)
    assert block is not None
    (own_home / "segue").mkdir()
    env = {"HOME": str(own_home), "SEGUE_HOME": str(own_home / "segue")}
    for command in block[1].splitlines():
        assert command.startswith("segue dashboard")
        with dashboard(env, *command.split()[2:]) as shown:
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}", shown.url)
        assert shown.process.returncode == 0


def test_a_daemon_that_is_back_is_seen_although_session_files_take_long_to_read(
    monkeypatch: pytest.MonkeyPatch, own_home: Path
) -> None:
    is_there = False

    class Daemon:
        def __init__(self, path: str, timeout_s: float) -> None: ...

        def is_there(self) -> bool:
            return is_there

        def get(self, path: str, **query: Any) -> dict[str, Any]:
            if not is_there:
                raise StateError("no daemon")
            if path == "/v1/status":
                return {"paused": []}
            return {"revision": 1, "is_whole": True, "sessions": [], "gone": []}

    monkeypatch.setattr(sources, "Remote", Daemon)
    monkeypatch.setattr(sources, "_FILES_S", 3_600.0)
    monkeypatch.setattr(sources, "_BACK_S", 0.0)
    place = own_home / "segue/watch.sock"
    monkeypatch.setattr(state, "socket_path", lambda: str(place))
    source = sources.Source()
    source.look()
    assert source.picture.daemon is None
    place.parent.mkdir(exist_ok=True)
    place.touch()
    is_there = True
    source.look()
    assert source.picture.daemon is not None


def told_of(number: int, used: int = 0) -> dict[str, Any]:
    reading = Reading(input_tokens=used) if used else None
    return tables.as_dict(
        Session(agent="claude", session_id=f"s-{number}", path="", cwd="/p", reading=reading)
    )


def test_of_many_sessions_only_those_that_changed_are_asked_for_and_drawn_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[dict[str, Any]] = []
    drawn: list[str] = []
    changes = [{"revision": 7, "is_whole": True, "sessions": [told_of(1), told_of(2)], "gone": []}]

    class Daemon:
        def __init__(self, path: str, timeout_s: float) -> None: ...

        def get(self, path: str, **query: Any) -> dict[str, Any]:
            if path != "/v1/changes":
                return {"paused": []}
            asked.append(query)
            return changes.pop() if changes else {"revision": 8, "sessions": [], "gone": []}

    def card(session: dict[str, Any], **how: bool) -> dict[str, Any]:
        drawn.append(session["session_id"])
        return own(session, **how)

    own = sessions_page.card
    monkeypatch.setattr(sessions_page, "card", card)
    monkeypatch.setattr(sources, "Remote", Daemon)
    monkeypatch.setattr(sources, "_is_shown", lambda session, now: True)
    monkeypatch.setattr(sources, "_ASK_S", 0.0)
    monkeypatch.setattr(sources, "_SHARE", 0.0)
    source = sources.Source()
    pages = Pages(source, "csrf")
    source.look()
    pages.page("/")
    assert (asked, sorted(drawn)) == ([{}], ["s-1", "s-2"])
    changed = {"revision": 8, "is_whole": False, "sessions": [told_of(2, 50_000)], "gone": []}
    changes.append(changed)
    source.look()
    page = pages.page("/")
    source.look()
    pages.page("/")
    assert drawn[2:] == ["s-2"]
    assert asked[1:] == [{"after": 7}, {"after": 8}]
    assert sum("25%" in html for html in page.blocks.values()) == 1
