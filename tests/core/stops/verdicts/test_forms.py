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
        # A server is up, and does not offer this model.
        ("error", "stderr", 'Error: Model "frob-9" is not available. Run `x models` for a list.'),
        # Node's last line after what it did not catch.
        ("crash", "stderr", "Uncaught TypeError: x\n    at run (cli.js:1:3)\n\nNode.js v20.11.0"),
        ("crash", "log", "frob-server exited with code -1073741819"),
        ("refusal", "stderr", "frob: Candidate.finish_reason=SAFETY, no text parts returned"),
        ("max_turns", "log", "Agent loop ended after 100 iterations without finishing."),
        ("max_budget", "tui", "You've reached the $10 cap you set for this run."),
        ("billing", "stderr", "Request denied: subscription inactive (status=past_due)"),
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
        (
            "stdout",
            "How to reproduce:\n$ frob hi\nAPI Error: 500 Internal server error\nExpected: x",
        ),
        ("stdout", "[Resolved] API requests were failing with 500 Internal Server Error."),
        ("stdout", "v2.1.4 (2026-02-01)\nFixed prompt is too long errors after resuming"),
        ("stdout", "Title: [BUG] API Error: 500 Internal server error\nLabels: bug"),
        (
            "stdout",
            'Scenario: quota exceeded\n  Given the API answers 429\n  Then the user sees "x"',
        ),
        (
            "stdout",
            'Response 429:\n\n{\n"error": {\n"message": "You exceeded your rate limit"\n}\n}\n\n'
            "Handle it by waiting for `retry-after` seconds.",
        ),
        (
            "stdout",
            "CODES\n  rate_limit_error      Your account has hit a rate limit.\n"
            "  frob_error            There is an issue with your API key.\n"
            "  overloaded_error      The API is temporarily overloaded.",
        ),
        ("stdout", f"cat > x <<EOF\n{LIMIT}\nEOF"),
        ("tui", "Notifications\n[x] Usage limit reached\n[ ] Waiting for approval"),
        ("stdout", "Rate limit exceeded – what it means and how to fix it | Blog"),
        # What a server answers if nothing failed.
        ("http-body", '{"title":"Rate limit exceeded","state":"open","number":42}'),
        ("http-body", "HTTP/1.1 200 OK\nx-ratelimit-remaining-requests: 0"),
        (
            "http-body",
            '{"id":"1","choices":[{"message":{"content":"Too Many Requests is an error."},'
            '"finish_reason":"length"}]}',
        ),
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
        (
            "tui",
            "■ stream disconnected: idle timeout\n\n› continue\n\n• I fixed the other two files.",
        ),
        ("tui", "Rate limit reached. Switching to fallback model frob-mini."),
        ("log", "[retry] 429 Too Many Requests, sleeping 20s\n[retry] ok after 2 attempts"),
        ("log", "Retry succeeded after 2 attempts (previous error: 529 Overloaded)"),
        # Not said as an error, not a limit, not a login.
        ("log", "WARN  Slow query: 3200ms (timeout is 5000ms)"),
        ("stderr", "Skipping file too large for context: data.json (3.2 MB)"),
        ("log", "2025-08-28 13:12:48.852 [info] [auth] Invalid frob token: missing token: 403"),
        ("tui", "5-hour limit: 6%, resets in 3h44m"),
        ("log", "2023-04-20T23:14:54 [ERROR] Permission denied (os error 13)"),
        ("tui", "The quota was exceeded on the staging project last week, not on production."),
        ("tui", "Your API key might have expired; check the dashboard."),
        ("tui", "The 529 errors you saw yesterday: its servers were overloaded for two hours."),
        (
            "stdout",
            "Raises:\n    TimeoutError: If the entire result iterator could not be generated\n"
            "        before the given timeout.",
        ),
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
        ("tui", "Permission request: Bash(make)\n\n  [1] Allow once\n  [2] Deny\n\n> "),
        (
            "stdout",
            "Provide feedback. Press enter to skip, or type 'exit' to end the conversation:",
        ),
        ("tui", "▲ Plan ready for review. Approve to start building, or give feedback."),
        (
            "tui",
            "Run this command?\nNot in allowlist: rm\n → Run (y) (enter)\n   Reject (esc or p)",
        ),
        ("tui", "Trust this workspace?\n\n  (●) Yes, trust\n  ( ) No"),
        ("tui", "▸ Approve plan? [Approve] [Edit] [Reject]"),
        ("tui", "Confirm deletion of 14 files: type DELETE to confirm"),
        ("stderr", "tool_use blocked: user approval needed (non-interactive session)"),
        ("stderr", "Cannot proceed without user consent: it writes outside the workspace."),
        ("log", "status=awaiting_approval tool=bash"),
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
        ("needs_user", {"type": "turn.paused", "reason": "awaiting_user_input"}),
        ("completed", {"type": "run.completed", "output": "done"}),
        ("user_exit", {"type": "turn.cancelled", "by": "user"}),
        ("unknown", {"type": "item.completed", "output": "done"}),
        ("rate_limit", {"type": "frob.error", "properties": {"error": "Rate limit reached"}}),
        ("unknown", {"type": "frob.error", "properties": {"error": "..."}}),
        ("unknown", {"id": 2, "result": {"stopReason": "frobbed"}}),
        (
            "auth",
            {
                "messages": [
                    {"role": "user", "content": "hi"},
                    {
                        "role": "assistant",
                        "stopReason": "error",
                        "errorMessage": "401 invalid x-api-key",
                    },
                ]
            },
        ),
        (
            "billing",
            {"message": {"stopReason": "error", "errorMessage": "402 insufficient_credits"}},
        ),
        ("completed", {"event": "result", "result": {"status": "SUCCESS", "response": "Done."}}),
        ("completed", {"type": "session.idle", "data": {}}),
    ],
)
@pytest.mark.parametrize("frame", ["{}", "data: {}"], ids=["a line", "an event"])
def test_the_last_record_of_an_unknown_agent_says_how_its_turn_ended(
    wanted: str, record: dict[str, object], frame: str
) -> None:
    text = frame.replace("{}", json.dumps(record))
    assert reason(text, "stream-json") == wanted


def test_a_menu_without_a_question_asks_for_no_permission() -> None:
    assert reason("Files\n  Continue\n  Cancel") == "unknown"
