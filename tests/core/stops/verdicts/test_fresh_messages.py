"""Forms in which real messages were missed, each with the rule behind it.

`fresh.jsonl` has short messages with their source, collected when the rules were done: all of them
got another verdict then. The others below are forms, written down for what they prove.
"""

import json
import subprocess
import sys

import pytest
from conftest import DATA, lines

from segue import classify
from segue.agents.ending import Channel


def test_the_batch_gets_fresh_messages_right() -> None:
    given = (DATA / "fresh.jsonl").read_text(encoding="utf-8")
    asked = [sys.executable, "-m", "segue", "classify", "--batch"]
    answer = subprocess.run(asked, input=given, capture_output=True, text=True, check=False)
    assert answer.returncode == 0
    got = [json.loads(line)["reason"] for line in answer.stdout.splitlines()]
    wanted = [record["label"].replace("none", "unknown") for record in lines("fresh.jsonl")]
    wrong = [
        (record["id"], label, reason)
        for record, label, reason in zip(lines("fresh.jsonl"), wanted, got, strict=True)
        if label != reason
    ]
    assert not wrong


SIGN_IN = "<!DOCTYPE html><html><head><title>Sign in · Example</title></head><body></body></html>"


@pytest.mark.parametrize(
    ("wanted", "channel", "text"),
    [
        # An error inside another says why.
        ("billing", "tui", "Failed to log in: PlanError: [denied] your trial has ended"),
        # A name whose value is empty claims nothing.
        ("unknown", "http-body", '"tpm_limit": null,\n"rpm_limit": null,\n"max_budget": null,'),
        # A field's value and the next field's name are not one sentence.
        ("error", "log", "[10:00:00] ERROR service=server error= failed\nError: Session not found"),
        # The cause outweighs a word that also names limits.
        ("error", "stderr", "Error: Validation failed for quota size. Unknown parameter: frobs"),
        # In a log, an error about the agent's own things is one; others are daily bread.
        ("error", "log", "[ERROR] Chat error: no frob chosen. You must specify a valid model."),
        ("unknown", "log", '{"error":"Error: 1: ENOENT","timestamp":"2025-07-09T15:00:00Z"}'),
        ("unknown", "log", "ERROR [otel] export failed: 401 Unauthorized"),
        # The program that speaks stands before what it says.
        ("rate_limit", "stderr", "frobd: Rate limit reached for model `m` in organization `o`."),
        # Buttons are a question; leaving is an answer.
        ("needs_user", "tui", "Run `make`?\nAllow once   Allow always   Reject"),
        ("user_exit", "tui", "Add it (recommended)? (Y)es/(N)o [Yes]: ^C"),
        # The last try is the last, also where a page follows it.
        (
            "timeout",
            "tui",
            "  ⎿  API Error (504: Gateway time-out) · Retrying in 3 seconds… (attempt 10/10)\n"
            "  ⎿ API Error: 504 <!DOCTYPE html>",
        ),
        # Advice below an error is about that error.
        (
            "timeout",
            "log",
            "2026-02-08 20:12:29,123 - m - ERROR - Streaming setup timeout after 6s.\n"
            "2026-02-08 20:12:29,123 - m - ERROR - Reduce input length or complexity",
        ),
        # A turn is taken back after an error, too.
        (
            "error",
            "tui",
            "Error: Request failed with status: 400 Bad Request.\n"
            "Interrupted before the model replied and removed the last message.",
        ),
        ("auth", "stderr", "FROB_API_KEY is not set"),
        ("user_exit", "tui", "Run `frob --resume 1234` to pick up this session again"),
        # A page is all that a gateway answered.
        ("auth", "stdout", SIGN_IN),
        ("overloaded", "stderr", "<html><head><title>502 Bad Gateway</title></head></html>"),
        # What is stated goes before what is advised: waiting helps here.
        ("rate_limit", "tui", "Your plan limit was hit. Upgrade to Pro or try again at 6:30 PM."),
        # What explains "internal error" goes before it, however often that is said.
        (
            "context_exhausted",
            "stderr",
            "Error: Internal error (code: -32603)\n"
            'Data: {"details":"<400> InternalError: Range of input length should be [1, 983616]"}',
        ),
        # A bad request is said in three ways, and each says the same.
        (
            "context_exhausted",
            "stdout",
            '[API Error: {"error":{"code":400,"message":"The input token count (90) exceeds what'
            ' fits","status":"INVALID_ARGUMENT"},"code":400,"status":"Bad Request"}]',
        ),
        # Words beat a code that says something else.
        (
            "overloaded",
            "stderr",
            'Error: 429 {"error":{"type":"rate_limit_error","message":"The engine is overloaded"}}',
        ),
        ("timeout", "stderr", "Error: fetch failed, cause: HeadersTimeoutError: Headers Timeout"),
        ("context_exhausted", "stderr", "ValueError: max_tokens must be at least 1, got -1289."),
        ("refusal", "stdout", '{"stopReason":"guardrail_intervened","output":{"text":"Sorry"}}'),
        ("crash", "stderr", "# Fatal process out of memory: Zone\n#\n 1: 00007FF7 node::Multi+5"),
        ("crash", "log", "ERROR 07-04 10:00:00 utils.py:120] Worker pid 328 died, exit code: -15"),
        # The cause of a try that is not the last stands below its count.
        ("unknown", "tui", "Reconnecting... 1/5\nstream disconnected before completion: timeout"),
        ("timeout", "tui", "Reconnecting... 5/5\nstream disconnected before completion: timeout"),
        # The rest of a sentence, a list of names, a table of statuses, a type: nobody says it.
        ("unknown", "tui", "with a segmentation fault, a bus error or another assertion"),
        ("unknown", "tui", "asks for permission to activate it."),
        ("unknown", "stdout", "    'ReadOnlyMemoryError',\n    'Real',\n    'StackOverflowError',"),
        (
            "unknown",
            "stdout",
            '    401: "Invalid API credentials.",\n    429: "Too many requests.",',
        ),
        ("unknown", "stderr", "    name: 'ResponseError'\n    code: 'UND_ERR'\n    status: number"),
        ("unknown", "tui", "Press Ctrl+C to leave the debugger"),
        ("unknown", "log", "ERR Failed to fetch models for deepinfra: Error: read ECONNRESET"),
    ],
)
def test_a_form_is_understood(wanted: str, channel: Channel, text: str) -> None:
    assert classify(text, channel=channel, now=0.0).reason.value == wanted
