"""`segue run` says what failed, stops gracefully and keeps the output. The verdicts themselves are
tested in test_failed_steps."""

import json
import sys
from pathlib import Path

import pytest
from support.running import QUICK, Ended, Staged, stage

from segue.core.stops.reasons import StopReason
from segue.core.stops.remedies import remedy
from segue.core.stops.types import Stop
from segue.runs.legs.leg import Leg

WINDOW = 1_000_000


def written(folder: Path, *parts: str) -> Path:
    file = folder / "scenario.toml"
    context = f"[context]\nwindow_tokens = {WINDOW}\nrefuses = false\n"
    file.write_text(f'about = "A failed step."\n{context}{"".join(parts)}')
    return file


def turn(used_tokens: int, command: str = "", text: str = "Working.") -> str:
    usage = f"{{input_tokens = 9, cache_read_tokens = {used_tokens - 10}, output_tokens = 1}}"
    run = f"command = {json.dumps(command)}\n" if command else ""
    return f"[[turns]]\ntext = {json.dumps(text)}\n{run}usage = {usage}\n"


def last_stop(s: Staged) -> Stop:
    with s.store() as store:
        return store.stops(s.run_ids()[0])[-1].stop


def row(ended: Ended, name: str) -> str:
    """A row of the failure report, with the lines that belong to it."""
    lines = ended.stderr.splitlines()
    place = next(n for n, line in enumerate(lines) if line.startswith(f"  {name} "))
    found = [lines[place]]
    for line in lines[place + 1 :]:
        if not line.startswith(" " * 12):
            break
        found.append(line)
    return "\n".join(found)


# Classification and remediation in the report

FULL = '[[rules]]\nfault = "too_long"\ntimes = 99\n[options.rehearsal]\ncompact = "0"\n'
HANGS = '[[rules]]\nafter_requests = 1\ndelivery = "hang"\ntimes = 99\n'


@pytest.mark.parametrize(
    ("scenario", "reason", "code"),
    [
        ("auth-failure", StopReason.AUTH, 1),
        ("billing", StopReason.BILLING, 1),
        ("turn-limit", StopReason.MAX_TURNS, 1),
        (FULL, StopReason.CONTEXT_EXHAUSTED, 1),
    ],
)
def test_classification_and_remediation_are_in_the_failure_report(
    scenario: str, reason: StopReason, code: int, tmp_path: Path
) -> None:
    place = scenario if "\n" not in scenario else written(tmp_path, scenario)
    with stage(place, within=tmp_path) as s:
        ended = s.run()
        assert ended.code == code, ended.stderr
        stop = last_stop(s)
        assert stop.reason is reason
        assert reason.value in row(ended, "why"), "the class"
        assert reason.description in row(ended, "why")
        assert stop.evidence[0].quote[:20] in row(ended, "evidence"), "and what it rests on"
        said = (stop.remediation or remedy(reason)).splitlines()[0]
        assert said in row(ended, "next"), "what to do"
        assert f"segue resume {s.run_ids()[0]}" in ended.stderr, "ready to paste"
        assert "tokens" in row(ended, "used")


def test_a_timeout_is_told_apart_from_a_full_window(tmp_path: Path) -> None:
    """Both say "context deadline exceeded"."""
    place = written(tmp_path, HANGS, turn(50_000, "true"))
    with stage(place, within=tmp_path) as s:
        ended = s.run("--set", "max_active_s=2")
        assert ended.code == 124, ended.stderr
        stop = last_stop(s)
        assert stop.reason is StopReason.TIMEOUT
        assert "timed out" in ended.stderr
        assert "context" not in ended.stderr.replace("--context", "")
        assert "max_active_s" in row(ended, "setting")


# Output and token data are kept


def test_token_data_is_captured_even_on_timeout(tmp_path: Path) -> None:
    place = written(tmp_path, HANGS, turn(50_000, "true"))
    with stage(place, within=tmp_path) as s:
        ended = s.run("--set", "max_active_s=2")
        assert ended.code == 124, ended.stderr
        stop = last_stop(s)
        assert stop.tokens is not None
        assert stop.tokens.used == 50_000
        with s.store() as store:
            (run,) = store.runs()
            readings = [kept.reading.used_tokens for kept in store.readings(run.id)]
        assert set(readings) == {50_000}, readings
        assert run.tokens >= 50_000
        assert "50K tokens" in row(ended, "used").replace("50.0K", "50K")


def test_the_window_in_the_token_data_is_the_one_that_the_run_worked_with(tmp_path: Path) -> None:
    place = written(tmp_path, HANGS, turn(170_000, "true"))
    # The agent itself tells its window only when a turn is over.
    known = f'[policy.known_windows]\n"claude-sonnet-4-5" = {WINDOW}\n'
    with stage(place, within=tmp_path, more=known) as s:
        assert s.run("--set", "max_active_s=2").code == 124
        stop = last_stop(s)
        assert stop.tokens is not None
        assert (stop.tokens.used, stop.tokens.window) == (170_000, WINDOW)
        assert not stop.context_risk, "17% is no risk"


def test_what_the_agent_flushes_when_it_is_ended_is_parsed(tmp_path: Path) -> None:
    """AD-2: a process that may write its result has one."""
    place = written(tmp_path, HANGS, turn(50_000, "true"))
    with stage(place, within=tmp_path) as s:
        assert s.run("--set", "max_active_s=2").code == 124
        leg = s.leg(s.run_ids()[0])
        records = [json.loads(line) for line in (leg / "stdout").read_text().splitlines()]
        assert records[-1]["type"] == "result", "it was given the time to write it"
        ended = Leg(leg).exit()
        assert ended is not None
        assert ended.exit_code != -9


# Grace, then kill

DEAF = """\
import signal, time
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
print("at work", flush=True)
while True:
    time.sleep(0.1)
"""
POLITE = """\
import signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
def last(number, frame):
    time.sleep(0.5)
    print("flushed at the last moment", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, last)
print("at work", flush=True)
while True:
    time.sleep(0.1)
"""


def custom(s: Staged, code: str, **policy: object) -> None:
    script = s.root / "agent.py"
    script.write_text(code)
    command = json.dumps([sys.executable, str(script)])
    s.config(f"[agents.mine]\ncommand = {command}\n", {**QUICK, "max_active_s": 1.0, **policy})


def test_grace_then_kill_for_an_agent_that_hears_nothing(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        custom(s, DEAF, grace_s=1.0)
        ended = s.segue("run", "--agent", "mine", "anything")
        assert ended.code == 124, ended.stderr
        exit = Leg(s.leg(s.run_ids()[0])).exit()
        assert exit is not None
        assert exit.exit_code == -9
        with s.store() as store:
            log = store.log(s.run_ids()[0])
        at = {entry.kind: entry.at for entry in log}
        told_at = next(e.at for e in log if any(d["decision"] == "endleg" for d in e.decisions))
        assert at["legended"] - told_at >= 1.0, "not before the grace was over"


def test_an_agent_that_ends_within_the_grace_is_not_killed_and_its_last_words_are_kept(
    tmp_path: Path,
) -> None:
    with stage("success", within=tmp_path) as s:
        custom(s, POLITE, grace_s=10.0)
        ended = s.segue("run", "--agent", "mine", "anything")
        assert ended.code == 124, ended.stderr
        leg = s.leg(s.run_ids()[0])
        exit = Leg(leg).exit()
        assert exit is not None
        assert exit.exit_code == 0
        assert (leg / "stdout").read_text().endswith("flushed at the last moment\n")


# The threshold of 70%


@pytest.mark.parametrize(
    ("percent", "asked"), [(64, None), (65, False), (69, False), (70, True), (71, True)]
)
def test_the_70_percent_preset_hands_over_from_65_at_a_boundary_and_at_70_at_once(
    percent: int, asked: bool | None, tmp_path: Path
) -> None:
    used = WINDOW * percent // 100
    rest = turn(20_000, "true"), turn(20_000, text="All is done.")
    # A call that is waited for, unless the mark is one that interrupts it.
    first = [turn(used, "sleep 5" if asked else "sleep 2")]
    place = written(tmp_path, *first, *rest)
    with stage(place, within=tmp_path) as s:
        ended = s.run("--json", "--policy", "early")
        assert ended.code == 0, ended.stderr
        asks = [d for e in ended.events for d in e["decisions"] if d["decision"] == "ask"]
        assert [ask["now"] for ask in asks] == ([] if asked is None else [asked])
