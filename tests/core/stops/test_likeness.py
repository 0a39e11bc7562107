"""The words of a whole text count beside what its wordings and claims say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support import likeness as fitting

from segue import classify
from segue.agents.ending import Channel
from segue.core.stops.claims.likeness import NO_STOP, Likeness, Table, words_of
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import EndedBy
from segue.system.config.wordings import likeness_table, load


def test_words_are_told_apart_by_their_seams_and_numbers_by_being_a_status() -> None:
    words = list(words_of("HTTP 429: RateLimitError after 3000 tries (限流)"))
    assert words == ["http", "#429", "rate", "limit", "error", "after", "#", "tries", "限", "流"]


def test_what_is_denied_is_another_word() -> None:
    assert list(words_of("It isn't full yet, at all")) == [
        *("it", "isn", "t"),
        *("not-full", "not-yet", "not-at"),
        "all",
    ]


def test_words_of_other_scripts_are_told_apart() -> None:
    words = list(words_of("Échec: Claudeの制限, слишком много"))
    assert words == ["échec", "claude", "の", "制", "限", "слишком", "много"]


def test_what_a_rule_found_and_the_words_around_it_decide_together() -> None:
    labels = (NO_STOP, StopReason.TIMEOUT, StopReason.OVERLOADED)
    weights: dict[str, tuple[int, ...]] = {
        "stalled": (-20, 24, 0),
        "changelog": (90, -50, -50),
        "=reason overloaded": (-40, 0, 80),
    }
    words = Likeness(lambda: Table.of(labels, (0.0, 0.0, 0.0), weights))
    stalled = words.likely(["stalled", "unknown word"], [])
    assert max(stalled, key=stalled.__getitem__) is StopReason.TIMEOUT
    assert sum(stalled.values()) == pytest.approx(1.0)
    found = words.likely(["stalled"], ["=reason overloaded"])
    assert found[StopReason.OVERLOADED] > stalled[StopReason.OVERLOADED]
    listed = words.likely(["stalled", "changelog"], ["=reason overloaded"])
    assert listed[StopReason.OVERLOADED] < found[StopReason.OVERLOADED]


@pytest.mark.parametrize(
    ("wanted", "channel", "text"),
    [
        # All of it is quoted, and nobody types here.
        ("rate_limit", "log", "> ERROR Rate limit reached for model m. Please try again in 20s."),
        # What the rules heard and dismissed stays dismissed.
        ("unknown", "tui", "You have not hit your limit."),
    ],
)
def test_a_text_is_read_as_a_whole(wanted: str, channel: Channel, text: str) -> None:
    assert classify(text, channel=channel).reason.value == wanted


@pytest.mark.parametrize(
    ("wanted", "channel", "text"),
    [
        ("rate_limit", "tui", "Your 5-hour window is spent. Next window opens at 18:42."),
        ("max_budget", "stderr", "Spend guard: this run has cost $5.02, your ceiling is $5.00."),
        ("overloaded", "tui", "The model's servers are swamped right now. Try again later."),
        ("timeout", "tui", "The model stayed silent for too long. We hung up after 10 minutes."),
        ("auth", "stderr", "q: could not refresh the Builder ID token. Run q login again."),
    ],
)
def test_a_stop_in_words_that_no_rule_knows_is_read_and_not_acted_on(
    wanted: str, channel: Channel, text: str
) -> None:
    stop = classify(text, channel=channel)
    assert (stop.reason.value, stop.confidence < 0.8) == (wanted, True), stop.evidence


@pytest.mark.parametrize(("exit_code", "wanted"), [(None, "completed"), (1, "error")])
def test_a_text_that_reads_as_done_is_not_believed_against_a_failed_process(
    exit_code: int | None, wanted: str
) -> None:
    text = "All tasks are complete: 3 files changed, every test passes."
    assert classify(text, channel="tui", exit_code=exit_code).reason.value == wanted


@pytest.mark.parametrize(
    ("ended_by", "exit_code", "wanted"),
    [("segue", 1, "timeout"), ("user", 1, "user_exit"), ("unknown", 130, "user_exit")],
)
def test_what_a_program_complains_of_while_it_is_ended_is_not_why_it_ended(
    ended_by: EndedBy, exit_code: int, wanted: str
) -> None:
    """codex prints this if it is ended in the middle of a turn."""
    text = "ERROR codex_core::session: failed to record rollout items: thread 01a1 not found"
    alone = classify(stderr=text, agent="codex")
    assert alone.evidence[0].rule.startswith("likeness."), "no rule knows it"
    stop = classify(stderr=text, agent="codex", ended_by=ended_by, exit_code=exit_code)
    assert stop.reason.value == wanted


def test_explain_names_the_words_that_weighed(tmp_path: Path) -> None:
    file = tmp_path / "screen.txt"
    file.write_text(
        "Requests to the Create operation under version 2024-02-01 have exceeded token rate limit"
        " of your current S0 pricing tier. Please retry after 60 seconds."
    )
    asked = [sys.executable, "-m", "segue", "explain", "--json", str(file)]
    answer = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    sign = answer["signs"][0]
    assert answer["reason"] == "rate_limit"
    assert answer["retry_after_s"] == 60.0
    assert sign["evidence"]["rule"] == "likeness.rate_limit"
    assert {"please", "seconds"} <= set(sign["words"])
    # Words alone are not acted on where nothing shows that this is an error.
    assert answer["confidence"] < 0.8


def test_the_table_was_fitted_to_the_marks_and_facts_that_texts_have() -> None:
    """Otherwise it would have to be fitted again: `python tests/support/likeness.py`."""
    read = fitting.weighed("Error: 429 rate limit reached", "stderr", None, load())
    assert read is not None
    known = set(likeness_table().marks)
    assert {"rate limit", "e:#429", "@in stderr ERROR"} <= set(read[0]) & known
    assert set(read[1]) <= known
