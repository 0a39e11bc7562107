"""Who speaks, by the form of a text: each form with a stop in it, or with none."""

import json

import pytest

from segue import classify
from segue.agents.ending import Channel

LIMIT = "You've hit your usage limit."


def reason(text: str, channel: Channel = "tui") -> str:
    return classify(text, channel=channel).reason.value


@pytest.mark.parametrize(
    ("wanted", "channel", "text"),
    [
        # A code that names what happened is the head of its message.
        (
            "context_exhausted",
            "stderr",
            "frob_tokens_exceeded: prompt token count of 129420 exceeds the limit of 128000",
        ),
        ("timeout", "stderr", 'Post "https://llm.example/v1": context deadline exceeded'),
        ("context_exhausted", "tui", "frob: Context length exceeded. Start a new session."),
        # A screen that was copied as one line.
        ("rate_limit", "tui", f"❯ Hi{' ' * 60}⎿  {LIMIT}"),
        # A logger's fields.
        ("rate_limit", "log", "[agent] run end: id=7 isError=true error=⚠ API rate limit reached."),
        # Tries that were counted to their end.
        (
            "overloaded",
            "tui",
            "Reconnecting... 4/5\nReconnecting... 5/5\nunexpected status 502 Bad Gateway: x",
        ),
        # A code right below a sentence belongs to it.
        (
            "rate_limit",
            "stdout",
            "Quota exhausted: Your quota has been exhausted.\n(cause: insufficient_quota: 1)",
        ),
        # What resets by itself need not be paid.
        (
            "rate_limit",
            "tui",
            'Error: 402 {"detail":"You\'ve reached your weekly usage limit (resets in 5 days).",'
            '"title":"Payment Required"}',
        ),
        # A timer is the cause of what it closed.
        ("timeout", "stdout", "Request failed: stream stalled: no data received for 30s."),
        ("overloaded", "tui", '✕ [API Error: {"error": {"code": 499, "status": "CANCELLED"}}]'),
        # Other languages.
        ("rate_limit", "tui", "Tageslimit erreicht. Bitte versuchen Sie es in 3 Stunden erneut."),
        ("rate_limit", "tui", "Limite de requêtes atteinte. Réessayez dans 15 minutes."),
    ],
)
def test_a_stop_is_heard_in_this_form(wanted: str, channel: Channel, text: str) -> None:
    assert reason(text, channel) == wanted


@pytest.mark.parametrize(
    ("channel", "text"),
    [
        # Notes on changes.
        ("stdout", "Highlights\n\n  • A request over the context window now compacts (#7)."),
        ("stdout", "feat(proxy): usage limit reached is told to the user"),
        # Tables: cells parted by tabs, messages by their keys, one body a line.
        ("http-body", "Header\tValue\tNotes\nx-ratelimit-limit\t14400\tRequests per day (RPD)"),
        (
            "stdout",
            '"frobInvalid": "API key invalid",\n"frobSlow": "Request timed out",\n'
            '"frobLong": "Input too long, truncate it",',
        ),
        (
            "stdout",
            '{ "error": "paywall_required" }\n{ "error": "daily_cap_reached", "limit": 12 }\n'
            '{ "error": "too_many_attempts" }',
        ),
        # Source code: samples below comments, arguments of calls.
        (
            "http-body",
            '// Server Error (500)\n{\n"error": {\n"message": "The server had an error"\n}\n}',
        ),
        ("stdout", 'error: {\nmessage: "Anthropic has an outage",\n},\n}),\n{ status: 503 }'),
        (
            "stdout",
            '#expect(parse(line: #"{"message":"usage limit reached"}"#) == .error("x"))\n'
            '#expect(parse(line: #"{"message":"stream disconnected"}"#) == .error("y"))',
        ),
        # Documents.
        (
            "transcript-record",
            "## Problem\n\nAPI Error: 401 Invalid credentials\n\n## Cause\n\nold",
        ),
        ("stdout", "### Example 1: a panic\npanic: runtime error: nil pointer dereference\n"),
        ("stdout", "### Errors\n\nError: Operation timed out after 60s\n\n**Solution:** wait"),
        ("stdout", "**Insufficient credits** – add credits to your account."),
        # What a tool printed.
        ("stdout", "CreateTool ⚙️ Function Output\nError: Request timed out."),
        ("stdout", "--- FAIL: TestJson (0.00s)\npanic: runtime error: nil pointer dereference"),
        # What went on.
        (
            "tui",
            "⏺ Login expired · Please run /login\n\n❯ /login\n  ⎿  Login successful\n\n⏺ I see.",
        ),
        ("tui", "✗ read\n   Unhandled error: Error: timed out\n●\n\n   Let me try another way:"),
        ("log", '{"error": {"message": "Reconnecting... 1/1"}, "willRetry": true}'),
        # Not said as an error, not a limit, not a login.
        ("log", "2025-08-28 13:12:48.852 [info] [auth] Invalid frob token: missing token: 403"),
        ("tui", "5-hour limit: 6%, resets in 3h44m"),
        ("log", "2023-04-20T23:14:54 [ERROR] Permission denied (os error 13)"),
        ("tui", "The 529 errors you saw yesterday: its servers were overloaded for two hours."),
    ],
)
def test_no_stop_is_heard_in_this_form(channel: Channel, text: str) -> None:
    assert reason(text, channel) == "unknown"


@pytest.mark.parametrize(
    ("channel", "text"),
    [
        ("tui", "[approval] Allow the `bash` tool to run? $ make"),
        ("stdout", "◆  Permission required to run: make\n│  ● Allow once\n│  ○ Reject\n└"),
        ("stderr", 'Warning: Tool "x" requires user approval but cannot run in headless mode.'),
        ("stdout", "└ Permission denied and could not request permission from user"),
        ("tui", "The agent is paused until you answer its question."),
        ("tui", "Awaiting user confirmation to execute 3 commands…"),
        ("tui", "Which one?\n 1) SQLite\n 2) Postgres\nType a number and press Enter:"),
        ("http-body", "Tool call timed out waiting for user confirmation."),
        ("tui", "Enter y to run this tool, otherwise continue chatting."),
    ],
)
def test_a_question_to_the_user_is_heard_in_this_form(channel: Channel, text: str) -> None:
    assert reason(text, channel) == "needs_user"


@pytest.mark.parametrize(
    "text",
    [
        "Note: By default, we stop the agent after 25 tool calls.",
        "⚠️ Tool Execution Limit Reached",
    ],
)
def test_a_cap_on_calls_is_one_on_turns(text: str) -> None:
    assert reason(text) == "max_turns"


@pytest.mark.parametrize(
    ("wanted", "record"),
    [
        ("user_exit", {"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "cancelled"}}),
        ("max_turns", {"id": 2, "result": {"stopReason": "max_turn_requests"}}),
        ("completed", {"id": 2, "result": {"stopReason": "end_turn"}}),
        ("needs_user", {"id": 7, "method": "session/request_permission", "params": {}}),
        ("rate_limit", {"type": "frob.error", "properties": {"error": "Rate limit reached"}}),
        ("unknown", {"type": "frob.error", "properties": {"error": "..."}}),
        ("unknown", {"id": 2, "result": {"stopReason": "frobbed"}}),
    ],
)
@pytest.mark.parametrize("frame", ["{}", "data: {}"], ids=["a line", "an event"])
def test_the_last_record_of_an_unknown_agent_says_how_its_turn_ended(
    wanted: str, record: dict[str, object], frame: str
) -> None:
    text = frame.replace("{}", json.dumps(record))
    assert reason(text, "stream-json") == wanted
