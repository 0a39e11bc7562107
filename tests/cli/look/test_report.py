"""`report`, the head of `show RUN`, and transcripts, through the real command line."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.homes import reply
from support.running import Staged, stage

from segue.watch.log import Log

EVIL = '<script>alert(1)</script> "onerror=x ![a](http://x/y) @everybody \x1b[31m\u202e'


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Staged, str]]:
    """A run with handoffs that is over."""
    with stage("three-exhaustions", within=tmp_path_factory.mktemp("done")) as s:
        ended = s.run("--json", "--check", "true")
        assert ended.code == 0, ended.stderr
        log = Log(s.home / "watch.db")
        at = time.time()
        for kind, session, data in (
            ("metrics", "s-1", {"outcome": "done", "why": ""}),
            ("wake", "s-2", {"verdict": "leave", "why": f"ended by user {EVIL}"}),
            ("wake", "s-3", {"verdict": "ask", "why": "a weekly limit"}),
            ("wake", "s-4", {"verdict": "resume", "why": "the limit is over"}),
        ):
            log.append(kind, at=at, agent="claude", session_id=session, project="/p/x", data=data)
        log.append("metrics", at=at - 10 * 86_400, agent="claude", session_id="old", data={})
        log.close()
        yield s, ended.events[0]["run"]


def test_a_report_tells_outcome_answer_check_changes_spend_and_decisions(
    done: tuple[Staged, str],
) -> None:
    s, run = done
    told = json.loads(s.segue("report", run, "--format", "json").stdout)
    assert told["schema"] == 1
    (one,) = told["runs"]
    with s.store() as store:
        kept, legs = store.run(run), store.legs(run)
    assert kept is not None
    assert one["state"] == "done"
    assert one["outcome"]["exit_code"] == 0
    assert one["answer"].strip() == (s.leg(run, kept.leg) / "answer.md").read_text().strip()
    assert one["check"] == {"command": "true", "ok": True, "exit_code": 0, "tries": 1}
    assert len(one["legs"]) == len(legs)
    assert len(one["handoffs"]) == kept.handoffs
    diff = json.loads(s.segue("diff", run, "--json").stdout)
    assert one["files"] == diff["files"]
    assert one["commits"] == diff["commits"]
    assert one["commits"]
    kinds = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    assert sum(each[kind] for each in one["spend"] for kind in kinds) == kept.tokens
    assert sum(each["cost_usd"] for each in one["spend"]) == pytest.approx(kept.cost_usd)
    assert one["decisions"][0]["reason"] == "a new task"
    assert not one["needs_you"]
    assert one["next"] == []


def test_the_text_fits_80_columns_and_leads_with_the_outcome(done: tuple[Staged, str]) -> None:
    s, run = done
    ended = s.segue("report", run)
    assert ended.code == 0, ended.stderr
    assert max(map(len, ended.lines)) <= 80
    body = ended.stdout.split("─" * 80)[1].splitlines()
    assert body[1].startswith(f"{run}  done: ")
    assert "(task): handed over" in ended.stdout
    for word in ("check", "changed", "commit", "timeline", "used", "decided"):
        assert any(line.startswith(word) for line in body), word
    # What is too long for a line goes on below its text, not below its time.
    decided = body[next(n for n, line in enumerate(body) if line.startswith("decided")) :]
    assert [line for line in decided if line.startswith(" " * 20)]
    markdown = s.segue("report", run, "--format", "md").stdout
    assert markdown.count("files changed") == 1


def test_without_a_run_it_tells_of_the_night_and_of_watched_sessions(
    done: tuple[Staged, str],
) -> None:
    s, run = done
    text = s.segue("report").stdout
    assert run in text
    assert "handed over" in text
    assert "left alone: ended by user" in text
    assert "segue allow s-3" in text
    assert "resumed: the limit is over" in text
    assert "old" not in text.split("SESSIONS IN TERMINALS")[1]
    later = s.segue("report", "--since", "0m")
    assert "Nothing happened in that time" in later.stdout
    for words, said in (
        (("--since", "soon"), "'soon' is not a time"),
        ((run, "--since", "1h"), "not both"),
        (("run-none",), "no run is called"),
        (("--format", "pdf"), "choose text, md, html or json"),
    ):
        refused = s.segue("report", *words)
        assert refused.code == 2
        assert said in refused.stderr
        assert len(refused.stderr.splitlines()) == 1


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


def test_the_page_is_one_file_that_loads_nothing_and_shows_hostile_text_as_text(
    tmp_path: Path,
) -> None:
    with stage("success", within=tmp_path) as s:
        s.task = f"{s.task}\n"
        (s.project / f"a{EVIL.replace('/', '')}").write_text("x")
        (run,) = {s.run("--json").events[0]["run"]}
        (s.leg(run) / "answer.md").write_text(f"all is done\n{EVIL}\n```\n# no heading")
        html = s.segue("report", run, "--format", "html").stdout
        page = Page(html)
        assert "svg" in page.tags
        assert "rect" in page.tags
        assert not {"script", "img", "link", "iframe", "a"} & set(page.tags)
        assert not {"src", "href", "onerror", "onload"} & set(page.attributes)
        assert "&lt;script&gt;alert(1)" in html
        assert "default-src 'none'" in html
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", html)
        markdown = s.segue("report", run, "--format", "md").stdout
        assert "<script>" not in markdown
        assert "![a]" not in markdown
        assert "@everybody" not in markdown
        assert not re.search("^# no heading", markdown, re.M)
        text = s.segue("report", run).stdout
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_a_run_that_needs_the_user_says_what_to_type(tmp_path: Path) -> None:
    with stage("auth-failure", within=tmp_path) as s:
        ended = s.run("--json")
        run = ended.events[0]["run"]
        assert ended.code != 0
        told = json.loads(s.segue("report", run, "--json").stdout)["runs"][0]
        assert told["needs_you"]
        assert any(f"segue resume {run}" in line for line in told["next"])
        text = s.segue("report").stdout
        assert "NEEDS YOU" in text
        assert f"segue resume {run}" in text
        (s.project).rename(tmp_path / "moved")
        s.project.mkdir()
        assert "is not in a git repository" in s.segue("report", run).stdout


def test_show_of_a_finished_run_leads_with_outcome_and_answer_and_has_no_stale_checkpoint(
    done: tuple[Staged, str],
) -> None:
    s, run = done
    shown = s.segue("show", run).stdout
    labels = [line.split()[0] for line in shown.splitlines() if line[:1].strip()]
    assert labels[:4] == ["run", "state", "outcome", "answer"]
    assert "checkpoint 1" not in shown
    assert "## Remaining" not in shown


def test_a_runs_transcript_is_a_conversation_with_folded_tools(done: tuple[Staged, str]) -> None:
    s, run = done
    text = s.segue("logs", run, "--transcript").stdout
    first, second = re.split(r"── leg 2 ──", text, maxsplit=1)
    assert "── leg 1 ──" in first
    assert re.search(r"^you\n  This repository has a job", first, re.M), "the task is its user's"
    assert re.match(r"\s*segue\n  ", second), "what continues it is segue's"
    assert "agent\n  " in text
    assert re.search(r"^  ▸ Bash: ", text, re.M)
    assert '"type"' not in text  # no raw records
    legs = [json.loads(x) for x in s.segue("logs", run, "--transcript", "--json").lines]
    with s.store() as store:
        assert [leg["leg"] for leg in legs] == [leg.leg for leg in store.legs(run)]
        session, *_, last = (leg.session_id for leg in store.legs(run))
    one = s.segue("logs", run, "--transcript", "--leg", "1").stdout
    assert text.startswith(one.rstrip("\n"))
    shown = s.segue("show", session, "--transcript")
    assert shown.code == 0, shown.stderr
    assert "you\n  " in shown.stdout
    assert "you\n  " not in s.segue("show", last, "--transcript").stdout
    assert re.search(r"^  ▸ Bash: ", shown.stdout, re.M)
    assert s.segue("logs", run, "--transcript", "-f").stdout == text  # it is over
    for words in (("logs", run, "--transcript", "--stderr"), ("show", run, "--transcript")):
        refused = s.segue(*words)
        assert refused.code == 2
        assert "--transcript" in refused.stderr


@pytest.mark.parametrize("by", ["day", "project", "agent", "model"])
def test_a_scan_by_anything_sums_up_to_the_scan(done: tuple[Staged, str], by: str) -> None:
    s, run = done
    whole = json.loads(s.segue("scan", "--json", "--cost").stdout)["totals"]
    told = json.loads(s.segue("scan", "--by", by, "--json").stdout)
    assert told["schema"] == 1
    for key in ("input", "output", "cache_read", "cache_write"):
        expected = sum(each[key] for each in whole)
        assert told["total"][key] == expected
        assert sum(row[key] for row in told["rows"]) == expected
    rows = told["rows"]
    with s.store() as store:
        entries = store.log(run)
    # One day, unless midnight came in between.
    days = {time.strftime("%Y-%m-%d", time.gmtime(entry.at)) for entry in entries}
    names = {"day": days, "project": {str(s.project)}, "agent": {"claude"}}
    assert {row["name"] for row in rows} == names.get(by, {rows[0]["models"][0]})
    cost = sum(row["cost_usd"] for row in rows)
    assert cost == pytest.approx(sum(each["cost_usd"] for each in whole))
    lines = s.segue("scan", "--by", by).lines
    assert lines[0].split()[0] == by
    assert lines[-1].split()[0] == "total"
    later = json.loads(
        s.segue("scan", "--by", by, "--since", "2100-01-01T00:00:00Z", "--json").stdout
    )
    assert later["rows"] == []


def test_a_scan_since_a_time_needs_by(done: tuple[Staged, str]) -> None:
    refused = done[0].segue("scan", "--since", "7d")
    assert refused.code == 2
    assert "--by" in refused.stderr


def test_many_requests_together_are_not_priced_as_one_long_request(own_home: Path) -> None:
    """Above 200,000 tokens in one request, the model of these replies costs twice as much."""
    folder = own_home / ".claude/projects/-x"
    folder.mkdir(parents=True)
    costs = []
    for count in (1, 10):
        rows = [reply(n + 1, 150_000, at=time.time()) for n in range(count)]
        (folder / "a.jsonl").write_text("\n".join(rows) + "\n")
        env = {"PATH": os.environ["PATH"], "HOME": str(own_home), "SEGUE_HOME": str(own_home / "s")}
        command = [sys.executable, "-m", "segue", "scan", "--by", "model", "--json"]
        done = subprocess.run(command, env=env, capture_output=True, check=True)
        (row,) = json.loads(done.stdout)["rows"]
        assert row["name"] == "claude-sonnet-4-5"
        costs.append(row["cost_usd"])
    assert costs[0] > 0
    assert costs[1] == pytest.approx(10 * costs[0])
