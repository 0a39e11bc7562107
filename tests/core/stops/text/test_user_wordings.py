"""The user's own wordings: they take precedence over ours, and an error in one costs only that
one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BANANAS = """
[[wording]]
id = "acme.bananas"
reason = "rate_limit"
pattern = '''out of (?:fresh )?bananas'''
example = ["Error: out of bananas"]
"""
LIMIT = "API Error: 429 Rate limit reached"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    place = tmp_path / "segue"
    place.mkdir()
    return place


@pytest.fixture
def run(tmp_path: Path, home: Path) -> Run:
    env = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(tmp_path),
        "SEGUE_HOME": str(home),
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
    }

    def call(*words: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "segue", *map(str, words)],
            input=stdin, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr[-600:]
        return done

    return call


def write(home: Path, text: str, name: str = "wordings.toml") -> None:
    (home / name).parent.mkdir(exist_ok=True)
    (home / name).write_text(text, encoding="utf-8")


def judged(run: Run, text: str) -> tuple[dict[str, Any], list[str]]:
    """The verdict on a text, and the lines on stderr."""
    done = run("classify", "--json", "-", stdin=text)
    assert done.returncode == 0
    return json.loads(done.stdout), done.stderr.splitlines()


def entry(**changes: str | None) -> str:
    """An entry of its own, with fields changed, added or (None) left out; values are TOML."""
    fields = {
        "id": '"acme.other"',
        "reason": '"billing"',
        "pattern": "'the till is empty'",
        "example": '["Error: the till is empty"]',
        **changes,
    }
    rows = [f"{name} = {value}" for name, value in fields.items() if value is not None]
    return "\n".join(["[[wording]]", *rows, ""])


# --- good entries -------------------------------------------------------------------------------


def test_entry_of_the_user_is_heard(run: Run, home: Path) -> None:
    assert judged(run, "Error: out of fresh bananas")[0]["reason"] == "error"
    write(home, BANANAS)
    verdict, said = judged(run, "Error: out of fresh bananas")
    assert said == []
    assert verdict["reason"] == "rate_limit"
    assert [e["rule"] for e in verdict["evidence"]] == ["acme.bananas"]


def test_files_in_the_wordings_folder_are_read_too(run: Run, home: Path) -> None:
    write(home, BANANAS)
    write(home, entry(), "wordings/till.toml")
    assert judged(run, "Error: the till is empty")[0]["reason"] == "billing"
    assert judged(run, "Error: out of bananas")[0]["reason"] == "rate_limit"


def test_blank_in_a_pattern_is_any_white_space(run: Run, home: Path) -> None:
    write(home, entry())
    assert judged(run, "Error: THE till\nis   empty")[0]["reason"] == "billing"


def test_user_goes_before_ours_when_both_say_the_same(run: Run, home: Path) -> None:
    write(home, entry(pattern="'rate limit reached'", example='["API Error: Rate limit reached"]'))
    verdict, said = judged(run, "API Error: Rate limit reached")
    assert said == []
    assert verdict["reason"] == "billing"
    assert verdict["evidence"][0]["rule"] == "acme.other"


def test_user_goes_before_ours_with_an_id_of_ours(run: Run, home: Path) -> None:
    """Whoever writes an entry with our id replaces it; that is no fault of theirs or ours."""
    write(home, entry(id='"general.rate_limit_exceeded"'))
    verdict, said = judged(run, "Error: the till is empty")
    assert verdict["reason"] == "billing"
    assert said == []


def test_user_silences_ours_with_a_counter_wording(run: Run, home: Path) -> None:
    text = "API Error: Rate limit reached (drill)"
    assert judged(run, text)[0]["reason"] == "rate_limit"
    write(home, entry(reason='"none"', pattern=r"'\(drill\)'", example='["(drill)"]'))
    verdict, said = judged(run, text)
    assert said == []
    assert verdict["reason"] == "unknown"


def test_entry_of_one_agent_counts_for_it_only(run: Run, home: Path, tmp_path: Path) -> None:
    write(home, entry(agents='["codex"]'))
    (tmp_path / "tail.txt").write_text("Error: the till is empty\n")
    reasons = [
        json.loads(run("classify", "--json", "--agent", agent, "tail.txt").stdout)["reason"]
        for agent in ("codex", "codex-cli", "claude")
    ]
    assert reasons == ["billing", "billing", "error"]


def test_no_file_is_not_a_fault(run: Run) -> None:
    assert judged(run, LIMIT)[1] == []


# --- faults -------------------------------------------------------------------------------------

FAULTS = [
    (entry(pattern="'(unclosed'"), "acme.other", "bad pattern"),
    (entry(pattern=r"'(\w+)\1'"), "acme.other", "bad pattern"),
    (entry(pattern="'(?=ahead)'"), "acme.other", "bad pattern"),
    (entry(pattern="'(?:a{1000}){1000}'"), "acme.other", "bad pattern"),
    (entry(pattern=None), "acme.other", "pattern"),
    (entry(reason=None), "acme.other", "reason"),
    (entry(example=None), "acme.other", "example"),
    (entry(id=None), "entry 2", "id"),
    (entry(colour='"red"'), "acme.other", "colour"),
    (entry(reason='"sunspots"'), "acme.other", "sunspots"),
    (entry(where='["everywhere"]'), "acme.other", "everywhere"),
    (entry(pattern="7"), "acme.other", "pattern"),
    (entry(pattern="''", example='["x"]'), "acme.other", "pattern"),
    (entry(id='"acme.bananas"'), "acme.bananas", "twice"),
    ("[colours]\nred = 1\n", "colours", "unknown key"),
]


@pytest.mark.parametrize(("text", "name", "fault"), FAULTS, ids=[f"{n}-{f}" for _, n, f in FAULTS])
def test_fault_is_reported_in_one_line_and_the_rest_works(
    run: Run, home: Path, text: str, name: str, fault: str
) -> None:
    write(home, BANANAS + text)
    for said_by_agent, rule in (("Error: out of bananas", "acme.bananas"), (LIMIT, "general.")):
        verdict, said = judged(run, said_by_agent)
        assert verdict["reason"] == "rate_limit"
        assert verdict["evidence"][0]["rule"].startswith(rule)
        assert len(said) == 1
        assert said[0].startswith(f"segue: wordings.toml: {name}: ")
        assert fault in said[0]


@pytest.mark.parametrize(
    "data",
    [b"[[wording]\n", b"id = \n", b"\xff\xfe\x00", b"wording = 5\n", b"[wording]\nid = 'x'\n",
     b"wording = [5]\n", b"\xef\xbb\xbf[[wording]]\n", b"\0"],
)  # fmt: skip
def test_broken_file_is_reported_in_one_line_and_ours_work(
    run: Run, home: Path, data: bytes
) -> None:
    (home / "wordings.toml").write_bytes(data)
    verdict, said = judged(run, LIMIT)
    assert verdict["reason"] == "rate_limit"
    assert len(said) == 1
    assert said[0].startswith("segue: wordings.toml: ")


def test_every_fault_is_reported_once(run: Run, home: Path) -> None:
    write(home, BANANAS + entry(pattern="'('") + entry(id='"acme.third"', reason=None))
    write(home, "[[wording\n", "wordings/broken.toml")
    verdict, said = judged(run, "Error: out of bananas")
    assert verdict["reason"] == "rate_limit"
    assert sorted(line.split(": ")[2] for line in said) == ["acme.other", "acme.third", "file"]


@pytest.mark.parametrize("words", [["classify", "--batch"], ["explain", "-"], ["wordings", "list"],
                                   ["wordings", "test", "hello"]], ids=" ".join)  # fmt: skip
def test_fault_is_reported_by_every_command(run: Run, home: Path, words: list[str]) -> None:
    write(home, entry(pattern="'('"))
    done = run(*words, stdin=json.dumps({"text": LIMIT}))
    assert done.returncode == 0
    said = [line for line in done.stderr.splitlines() if "wordings.toml" in line]
    assert len(said) == 1
    assert "acme.other" in said[0]


def test_greedy_entries_do_not_deafen_the_rest(run: Run, home: Path) -> None:
    """Each pattern is one that RE2 takes; all of them together must not use up its memory."""
    greedy = [entry(id=f'"acme.big{n}"', pattern=f"'big{n} \\pL{{900}}'") for n in range(14)]
    write(home, BANANAS + "".join(greedy))
    assert judged(run, LIMIT)[0]["reason"] == "rate_limit"
    assert judged(run, "Error: out of bananas")[0]["reason"] == "rate_limit"


def test_entry_that_matches_everywhere_comes_to_an_end(run: Run, home: Path) -> None:
    write(home, entry(pattern="'[a-z]'", example='["Error: a"]'))
    assert judged(run, "Error: a " + "abc " * 300)[0]["reason"] in ("billing", "unknown")


# --- the command --------------------------------------------------------------------------------


def test_list_shows_the_users_first(run: Run, home: Path) -> None:
    write(home, BANANAS)
    done = run("wordings", "list", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    wordings = json.loads(done.stdout)["wordings"]
    assert wordings[0]["id"] == "acme.bananas"
    assert len(wordings) > 100
    lines = run("wordings", "list").stdout.splitlines()
    assert lines[0].startswith("acme.bananas")
    assert len(lines) == len(wordings)


def test_list_of_one_reason_holds_that_reason_only(run: Run) -> None:
    done = run("wordings", "list", "--json", "--reason", "none")
    assert {w["reason"] for w in json.loads(done.stdout)["wordings"]} == {"none"}


def test_list_of_a_reason_that_does_not_exist_is_refused(run: Run) -> None:
    done = run("wordings", "list", "--reason", "sunspots")
    assert (done.returncode, done.stdout) == (2, "")
    assert "sunspots" in done.stderr


def test_test_says_what_matched(run: Run, home: Path) -> None:
    write(home, BANANAS)
    done = run("wordings", "test", "--json", "Error: out of bananas")
    assert (done.returncode, done.stderr) == (0, "")
    verdict = json.loads(done.stdout)
    assert (verdict["reason"], verdict["matched"]) == ("rate_limit", ["acme.bananas"])
    assert "acme.bananas" in run("wordings", "test", "Error: out of bananas").stdout


@pytest.mark.parametrize("words", [["-"], []])
def test_test_reads_standard_input(run: Run, home: Path, words: list[str]) -> None:
    write(home, BANANAS)
    done = run("wordings", "test", "--json", *words, stdin="Error: out of bananas\n")
    assert done.returncode == 0
    assert json.loads(done.stdout)["matched"] == ["acme.bananas"]


def test_testing_unknown_words_is_not_an_error(run: Run) -> None:
    done = run("wordings", "test", "--json", "all is well")
    assert (done.returncode, done.stderr) == (0, "")
    verdict = json.loads(done.stdout)
    assert (verdict["reason"], verdict["matched"], verdict["lost"]) == ("unknown", [], {})


def test_check_of_a_good_file(run: Run, home: Path) -> None:
    write(home, BANANAS)
    done = run("wordings", "check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 valid, 0 invalid\n", "")


@pytest.mark.parametrize(("text", "name", "fault"), FAULTS, ids=[f"{n}-{f}" for _, n, f in FAULTS])
def test_check_tells_every_fault(
    run: Run, home: Path, tmp_path: Path, text: str, name: str, fault: str
) -> None:
    (tmp_path / "mine.toml").write_text(BANANAS + text)
    done = run("wordings", "check", "mine.toml")
    assert (done.returncode, done.stdout) == (1, "1 valid, 1 invalid\n")
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"segue: mine.toml: {name}: ")
    assert fault in said


@pytest.mark.parametrize(("changes", "fault"), [
    ({"example": '["Error: the till is full"]'}, "does not match its example"),
    ({"except_for": '["Error: the till is empty again"]'}, "which it must not"),
    ({"where": '["line"]', "example": '["we say the till is empty today"]'}, "does not match"),
])  # fmt: skip
def test_check_tries_the_examples(
    run: Run, home: Path, changes: dict[str, str], fault: str
) -> None:
    write(home, entry(**changes))
    done = run("wordings", "check")
    assert done.returncode == 1
    (said,) = done.stderr.splitlines()
    assert said.startswith("segue: wordings.toml: acme.other: ")
    assert fault in said


@pytest.mark.parametrize("name", ["nowhere.toml", "."])
def test_checking_something_that_is_not_a_file_says_so(run: Run, name: str) -> None:
    done = run("wordings", "check", name)
    assert done.returncode in (1, 2)
    assert len(done.stderr.splitlines()) == 1


def test_check_without_any_file_says_where_it_looked(run: Run, home: Path) -> None:
    done = run("wordings", "check")
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert str(home) in said
