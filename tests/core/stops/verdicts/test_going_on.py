"""An error below which the work went on ended nothing, and neither did one of a side job.

The forms are those in which fresh messages were misread; each text is written for what it proves.
"""

import pytest

from segue import api, classify
from segue.agents.ending import Channel, Ending, Source


@pytest.mark.parametrize(
    ("channel", "text"),
    [
        # Another try, in other words.
        ("tui", "Request timed out, resending…"),
        ("tui", "Model returned an empty response. Trying once more…"),
        ("log", "⚠️ Token expired (401). Attempting to refresh it…"),
        (
            "log",
            '{"level":"warn","msg":"provider error, trying next","status":429}\n'
            '{"level":"info","msg":"ok","status":200}',
        ),
        # It went well below.
        (
            "log",
            "[cron] job sync failed: connect ETIMEDOUT 10.2.3.4:5432\n[cron] job sync done in 3.1s",
        ),
        # The agent goes on in one short sentence.
        ("tui", "  ⎿  Error: Exit code 1\n\n● The server isn't running, so I'll start it first."),
        # A tool or a hook reports to the agent.
        ("tui", "  ⎿  Error: File has not been read yet. Read it first before writing to it."),
        # A side job, and a warning that doubts itself.
        ("tui", 'Error: Failed to load usage data: {"error":{"type":"rate_limit_error"}}'),
        ("log", "2025/07/30 19:38:04 WARN Provider is missing API key, this might be OK"),
        # What a thing means, when it is raised, what a view shows: nobody says that it happened.
        ("stdout", "HTTP 429 means the caller should slow down."),
        ("stdout", "Segmentation fault (core dumped) usually means a mismatched library."),
        ("stdout", "description: Raised when the conversation exceeds the maximum context length."),
        ("tui", "  Plan: Pro\n  Credits: $4.12 remaining\n  Auto top-up: off"),
        # The server of a tool is not the provider's.
        (
            "log",
            "Error: Plugin MCP server error - mcp-config-invalid: MCP server files invalid: Missing"
            " environment variables: FILES_TOKEN\n    at load (/$bunfs/root/cli.js:15:3)",
        ),
        # A code span in a sentence is a mention.
        ("tui", "The retry loop handles `429 Too Many Requests` now."),
    ],
)
def test_it_is_no_stop(channel: Channel, text: str) -> None:
    assert classify(text, channel=channel, now=0.0).reason.value == "unknown"


@pytest.mark.parametrize(
    ("wanted", "channel", "text"),
    [
        # A wait of half an hour is a stop, though tries are left.
        (
            "rate_limit",
            "tui",
            "Error: API error (429): Quota exceeded. Please retry in 41s.\n"
            "⠋ Retrying (1/3) in 1800s… (esc to cancel)",
        ),
        # Why the compaction failed is the cause.
        ("overloaded", "tui", "Compaction failed: Summarization failed: terminated"),
        # A full window stays full, whatever the client goes on without.
        (
            "context_exhausted",
            "tui",
            "Error: Your input exceeds the context window of this model.\n"
            "Warning: Auto-compaction failed; continuing without compaction",
        ),
        # Nothing but one code span: somebody copied it as it stood in an issue.
        ("overloaded", "tui", '`API Error: 529 {"error":{"type":"overloaded_error"}}`'),
        (
            "context_exhausted",
            "tui",
            "`litellm.BadRequestError: prompt is too long:\n210543 tokens > 200000 maximum`\n",
        ),
        ("user_exit", "stdout", "Summary: process killed by signal 15 (SIGTERM)"),
        ("billing", "stderr", "Execution failed: 402 You have no quota"),
        ("needs_user", "stdout", "I need your permission to edit config.yaml."),
        ("needs_user", "stdout", "Agent paused: approval is required before it can run `make`."),
        ("auth", "tui", " Select login method:\n\n > 1. Subscription\n   2. API key"),
        ("refusal", "http-body", '{"candidates":[{"finishReason":"SAFETY","index":0}]}'),
    ],
)
def test_it_is_one(wanted: str, channel: Channel, text: str) -> None:
    assert classify(text, channel=channel, now=0.0).reason.value == wanted


def test_a_cut_record_with_a_number_as_its_type_is_read() -> None:
    source = Source(text='[{"type": 3, "message": "started"', channel="stdout", name="stdout")
    assert api.examine(Ending(sources=(source,)), now=0.0).stop.reason.value == "unknown"


def test_a_count_of_tries_is_no_date() -> None:
    stop = classify("Error: 429 Rate limit reached. Retrying (1/3) in 1800s", now=0.0)
    assert stop.retry_at == 1800.0
