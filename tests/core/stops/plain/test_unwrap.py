"""What terminals and loggers do to text is undone before words are looked for, and evidence still
points to the line where they stood."""

import pytest

from segue import api
from segue.agents.ending import Channel, Ending, Source
from segue.core.stops.plain.text import units
from segue.core.stops.plain.unwrap import is_html, prefix_of, unbroken, unescape, untagged, unwrap
from segue.core.stops.types import Stop

PREFIXES = (
    "2026-02-08T20:12:29.123Z ERROR agent: ",
    "[2026-02-08 20:12:29] ERROR ",
    "2026-02-08 20:12:29,123 - litellm - ERROR - ",
    "Feb 08 20:12:29 host agent[123]: ",
    "agent-1 | ",
    "(APIServer pid=1) ERROR 02-08 20:12:29 [router.py:72] ",
    "20:12:29 ERROR homemind.ai — ",
    'time="2026-02-08T20:12:29Z" level=error msg="',
    "E0208 20:12:29.123456 123 agent.cc:77] ",
    "[agent] stderr: ",
    "ERROR:agent.core:",
    "2026/02/08 20:12:29 [error] 77#77: ",
)
NOW = 1_770_581_549.0  # 2026-02-08T20:12:29Z: the stamp of the prefixes
SPEECH = (
    "API Error: 429 Rate limit reached",
    "[API Error: Rate limit reached]",
    "Error: connect ECONNREFUSED",
    "litellm.RateLimitError: x",
    "You've hit your limit",
    "",
)


def judged(text: str, channel: Channel = "tui") -> Stop:
    return api.examine(
        Ending(sources=(Source(text=text, channel=channel, name="x"),)), now=NOW
    ).stop


@pytest.mark.parametrize("prefix", PREFIXES)
def test_what_a_logger_puts_before_a_line_is_taken_off(prefix: str) -> None:
    assert prefix_of(f"{prefix}You have hit your limit") == prefix


@pytest.mark.parametrize("said", SPEECH)
def test_speech_is_not_a_prefix(said: str) -> None:
    assert prefix_of(said) == ""


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_sentence_broken_over_logged_lines_is_one_and_its_reset_is_read(prefix: str) -> None:
    broken = (
        "API Error: 429 You've hit your usage limit for this plan. Please try",
        "again in 2 hours.",
    )
    stop = judged("\n".join(prefix + part for part in broken), "stderr")
    assert (stop.reason.value, stop.retry_after_s) == ("rate_limit", 7200)


def test_evidence_names_the_line_on_which_the_words_stood() -> None:
    text = "one\n\ntwo\n\n" + "\n".join(
        f"{PREFIXES[0]}{part}" for part in ("API Error:", "Overloaded")
    )
    stop = judged(text, "stderr")
    assert stop.reason.value == "overloaded"
    assert stop.evidence[0].where == "x:5"


def test_a_box_a_gutter_and_quotes_are_taken_off() -> None:
    said = "API Error: prompt is too long: 210883 tokens > 199999 maximum"
    width = len(said)
    box = f"+{'-' * (width + 2)}+\n| {said} |\n+{'-' * (width + 2)}+"
    drawn = f"╭{'─' * (width + 2)}╮\n│ {said} │\n╰{'─' * (width + 2)}╯"
    for text in (box, drawn, f"> {said}\n> Request ID: req_1", f"▌ {said}", f"> {said}"):
        assert judged(text).reason.value == "context_exhausted", text


def test_a_table_is_not_a_box() -> None:
    table = "+-----+------------+\n| 429 | rate limit |\n+-----+------------+"
    assert judged(table).reason.value == "unknown"


def test_a_json_string_is_read_at_every_depth() -> None:
    import json

    said = "Working.\nAPI Error: Rate limit reached"
    for _ in range(3):
        said = json.dumps(said)
        assert judged(said).reason.value == "rate_limit", said
        assert judged(said).evidence[0].where == "x:1"


def test_a_gateways_page_is_read_as_the_errors_body() -> None:
    title = "<title>api | 524: A timeout occurred</title>"
    page = f"<html>\n<head>\n\n{title}\n</head>\n<body></body></html>"
    assert judged(f"API Error: 524 {page}").reason.value == "timeout"
    assert judged(page, "http-body").reason.value == "timeout"
    assert judged(page, "tui").reason.value == "unknown", "a page that is shown is no error"


def test_a_word_that_a_width_broke_is_read_whole() -> None:
    said = "LLM error: 429 - request reached organization max RPM: 20, please try a"
    text = f"{said}\ngain after 30 seconds"
    assert judged(text).retry_after_s == 30
    assert unbroken("try a\ngain") == "try again"


def test_the_helpers() -> None:
    assert is_html("<title>x</title>")
    assert not is_html("a < b")
    assert untagged("<h1>502&nbsp;Bad <b>Gateway</b></h1>") == "502 Bad Gateway"
    assert unescape(r"a\\\"b\\\" \n c") == 'a"b" \n c'


def test_lines_are_never_lost_and_numbers_only_rise() -> None:
    raw = [f"{PREFIXES[2]}line {n}" if n % 3 else "" for n in range(60)]
    lines = unwrap(raw, 10)
    assert [line.number for line in lines] == list(range(10, 70))
    assert units(lines)


@pytest.mark.parametrize(
    "text", ["|" * 20_000, '"' * 20_001, "<" * 20_000, "[a] " * 5_000, "> " * 9_000]
)
def test_odd_lines_are_read_without_a_fault(text: str) -> None:
    assert judged(text).reason.value == "unknown"
