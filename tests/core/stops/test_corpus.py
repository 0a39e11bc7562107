"""Scored on real messages and real runs. The confusion table stands at the end of the output."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from conftest import DATA, lines

from segue import api
from segue.agents.ending import Ending, Source
from segue.core.stops import resets
from segue.core.stops.classify import Judgement
from segue.core.stops.reasons import StopReason

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC).timestamp()
ZONE = ZoneInfo("Europe/Berlin")
AGENTS = sorted(file.stem for file in (DATA / "recordings").glob("*.jsonl"))


def judged(record: dict[str, Any], now: float = NOW, tz: tzinfo = ZONE) -> Judgement:
    source = Source(text=record["text"], channel=record["channel"], name=record["channel"])
    ending = Ending(sources=(source,), agent=record["agent"], exit_code=record["exit_code"])
    return api.examine(ending, now=now, tz=tz)


@pytest.fixture(scope="module")
def confusion() -> Counter[tuple[str, str]]:
    table: Counter[tuple[str, str]] = Counter()
    for record in lines("stops.jsonl"):
        wanted = "unknown" if record["label"] == "none" else record["label"]
        table[wanted, judged(record).stop.reason.value] += 1
    return table


def f1(table: Counter[tuple[str, str]], label: str) -> float:
    right = table[label, label]
    wrong = sum(n for (w, g), n in table.items() if (w == label) != (g == label))
    return 2 * right / (2 * right + wrong) if right else 0.0


def printed(table: Counter[tuple[str, str]]) -> str:
    labels = [r.value for r in StopReason if any(r.value in pair for pair in table)]
    rows = [
        f"{'right / said':<18}" + "".join(f"{label[:9]:>10}" for label in labels) + "        F1"
    ]
    for wanted in labels:
        cells = "".join(f"{table[wanted, got] or '·':>10}" for got in labels)
        rows.append(f"{wanted:<18}{cells}{f1(table, wanted):>10.3f}")
    return "\n".join(rows)


def test_macro_f1_over_the_labels_of_real_messages(
    confusion: Counter[tuple[str, str]], record_property: Callable[[str, object], None]
) -> None:
    labels = {wanted for wanted, _ in confusion}
    score = sum(f1(confusion, label) for label in labels) / len(labels)
    told = f"{printed(confusion)}\nmacro-F1 {score:.4f} on {confusion.total()} messages"
    record_property("summary", told)
    assert score >= 0.97, printed(confusion)


def test_text_that_is_not_a_stop_is_never_called_one(confusion: Counter[tuple[str, str]]) -> None:
    false_stops = sum(n for (w, g), n in confusion.items() if w == "unknown" and g != "unknown")
    assert false_stops <= 1, printed(confusion)


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("with_session", [False, True], ids=["stream only", "with session file"])
def test_every_recorded_run_gets_its_reason(agent: str, with_session: bool) -> None:
    wrong = []
    for run in lines(f"recordings/{agent}.jsonl"):
        sources = [
            Source(text=run["stdout"], channel="stdout", name="stdout"),
            Source(text=run["stderr"], channel="stderr", name="stderr"),
        ]
        if with_session and "transcript" in run:
            sources.append(Source(text=run["transcript"], channel="transcript", name="transcript"))
        ending = Ending(sources=tuple(sources), agent=agent, exit_code=run["exit_code"])
        stop = api.examine(ending, now=NOW, tz=ZONE).stop
        if stop.reason.value not in run["reasons"]:
            wrong.append((run["name"], run["reasons"], stop.reason.value, stop.evidence))
    assert not wrong


@pytest.mark.parametrize("agent", AGENTS)
def test_an_unnamed_agent_is_recognised_by_its_records(agent: str) -> None:
    """Without `--agent`, only what an agent's own exit codes mean may be lost."""
    wrong = []
    for run in lines(f"recordings/{agent}.jsonl"):
        if not run["stdout"].startswith("{"):
            continue
        ending = Ending(
            sources=(Source(text=run["stdout"], channel="stdout", name="stdout"),),
            exit_code=run["exit_code"],
        )
        got = api.examine(ending, now=NOW, tz=ZONE).stop.reason.value
        if got not in run["reasons"]:
            wrong.append((run["name"], run["reasons"], got))
    assert len(wrong) <= 1, wrong


def expected_instant(reset: dict[str, Any], now: float, tz: tzinfo) -> float:
    """What a person would say, computed apart from the grammar."""
    if reset["kind"] == "duration":
        return now + float(reset["seconds"])
    if "epoch" in reset:
        return float(reset["epoch"])
    place = resets.zone(reset["zone"]) if "zone" in reset else tz
    assert place is not None
    hour, minute = (int(part) for part in reset.get("clock", "00:00").split(":"))
    here = datetime.fromtimestamp(now, place)
    if "date" in reset:
        parts = [int(part) for part in reset["date"].split("-")]
        years = [parts[0]] if len(parts) == 3 else [here.year - 1, here.year, here.year + 1]
        month, day = parts[-2:]
        found = [datetime(y, month, day, hour, minute, tzinfo=place).timestamp() for y in years]
        return min(found, key=lambda at: abs(at - now))
    at = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
    if at < here - timedelta(hours=1):
        at += timedelta(days=1)
    return at.timestamp()


@pytest.mark.parametrize("hours", [0, 5, 11, 17, 23])
@pytest.mark.parametrize("place", ["UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Kolkata"])
def test_reset_times_give_the_right_instant(hours: int, place: str) -> None:
    now, tz = NOW + hours * 3600 + 1234, ZoneInfo(place)
    told = [record for record in lines("stops.jsonl") if "reset" in record]
    wrong = []
    for record in told:
        at = judged(record, now, tz).stop.retry_at
        right = expected_instant(record["reset"], now, tz)
        if at is None or abs(at - right) > 1:
            wrong.append((record["id"], record["reset"], at, right))
    assert len(wrong) <= 0.05 * len(told), wrong


def test_a_stop_without_a_reset_time_gets_none() -> None:
    invented = [
        (record["id"], stop.retry_at)
        for record in lines("stops.jsonl")
        if record["label"] == "rate_limit"
        and "reset" not in record
        and (stop := judged(record).stop).retry_at is not None
    ]
    assert not invented


def test_token_figures_of_a_full_window_are_read_from_the_message() -> None:
    told = [record for record in lines("stops.jsonl") if len(record.get("tokens", ())) == 2]
    wrong = []
    for record in told:
        tokens = judged(record).stop.tokens
        want = (record["tokens"]["used_tokens"], record["tokens"]["limit_tokens"])
        if tokens is None or (tokens.used, tokens.window) != want:
            wrong.append((record["id"], want, tokens))
    assert len(wrong) <= 0.1 * len(told), wrong
