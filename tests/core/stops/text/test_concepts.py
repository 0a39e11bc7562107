"""A message that no wording knows is understood by what it claims; a text about stops is not."""

import pytest
import re2

from segue import classify
from segue.agents.ending import Channel
from segue.core.stops.claims.table import CLAIMS, Claim
from segue.core.stops.claims.vocabulary import Vocabulary
from segue.core.stops.text.wordings import Catalogue
from segue.system.config import wordings

EXAMPLES = {
    "named_model": "the model `frob-2` is not available",
    "awaits": "the run is on hold until you answer",
    "consent unattended": "approval is impossible, this is a headless run",
    "plan_limit reached": "the hourly quota of this seat was hit",
    "limit reached": "the cap was reached",
    "limit later": "the usage will reset",
    "many": "throttled by the model host",
    "money lacking": "the wallet's prepaid funds are depleted",
    "must_pay": "payment required before the next call",
    "window too_big": "the chat history is larger than the model takes",
    "window_line": "context overflow in the last call",
    "login denied": "the bearer token was rejected",
    "login_line": "run `frob login` first",
    "far away": "the inference backend is unreachable",
    "outage": "getaddrinfo EAI_AGAIN llm.example",
    "timer": "the model stopped responding",
    "died": "worker process 7 terminated (SIGSEGV)",
    "blocked": "stopped by the guardrail of this workspace",
    "content barred": "this prompt was flagged",
    "turns used_up": "the agent used up its steps",
    "purse used_up": "this run's budget was crossed",
    "left": "cancelled by the user",
    "farewell": "Goodbye",
    "consent asked": "waiting for your approval",
    "wants": "Frob wants to delete this folder",
    "fault": "unknown parameter top_kk",
    "fault_line": "unable to parse the model reply",
    "thing absent": "no such provider",
    "answer_cap too_big": "max_tokens is larger than the model answers with",
}


def name(claim: Claim) -> str:
    return f"{claim.of} {claim.says}".strip()


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return wordings.vocabulary()


@pytest.mark.parametrize("claim", CLAIMS, ids=name)
def test_a_claim_is_heard_in_its_example(claim: Claim, vocabulary: Vocabulary) -> None:
    """The example is an agent's error, without any wording of ours to help."""
    bare = Catalogue([], vocabulary=vocabulary)
    weighed = vocabulary.weigh(EXAMPLES[name(claim)])
    assert weighed is not None
    assert weighed.reason is claim.reason
    assert bare.vocabulary is vocabulary


def test_every_term_is_used_and_is_re2() -> None:
    import tomllib

    terms = tomllib.loads(wordings.CONCEPTS.read_text(encoding="utf-8"))["term"]
    assert terms.keys() == {term for claim in CLAIMS for term in (claim.of, claim.says) if term}
    for pattern in terms.values():
        assert re2.compile(pattern).search("") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Error: the seat's weekly allowance was used up; it resets in 3 hours", "rate_limit"),
        ("Error: 429 you are out of prepaid credits, top up to go on", "billing"),
        ("Error: 500 the transcript does not fit the model's window any more", "context_exhausted"),
        ("Error: workspace_credit_depleted", "billing"),
        ("frob: fatal: ContextSizeOverflow", "context_exhausted"),
        ("Error: upstream pool drained, the host went away", "overloaded"),
        ("Error: the answer did not arrive within 90 s", "timeout"),
        ("[frob] Error: sign-in of this machine was revoked", "auth"),
        ("Your frob seat has hit its daily limit · resets 4pm", "rate_limit"),
        ("Server is temporarily limiting requests (not your usage limit)", "overloaded"),
    ],
)
def test_a_message_nobody_has_shown_us_is_understood(text: str, reason: str) -> None:
    assert classify(text, channel="stderr").reason.value == reason


@pytest.mark.parametrize("channel", ["tui", "stdout"])
@pytest.mark.parametrize(
    "text",
    [
        "Rate limits are there to keep the service fair for everybody.",
        "The client retries when the server is overloaded.",
        "Requests that exceed the context window are now split in two.",
        "Our gateway enforces a daily quota, which can be raised in the settings.",
        "I think the API key is invalid, because the log says so.",
        "If your session has expired, sign in again.",
        "The `EBADTOKEN` error means that the access token is expired.",
        "Fixed a crash that happened when the connection was lost.",
        "Llama's maximum context length is 8K tokens.",
        "Summary: the provider was down for ten minutes and all jobs finished later.",
        "✓ reports that the budget was exceeded",
        "• Overloaded providers are retried.",
        "429 responses are retried with a growing delay.",
        "# Help\n\n## Limit reached\n\nYou have hit your usage limit.\n\n## Signing in\n\nSign in.",
    ],
)
def test_a_text_about_stops_is_not_a_stop(text: str, channel: Channel) -> None:
    assert classify(text, channel=channel).reason.value == "unknown"


def test_a_log_that_calls_it_harmless_is_believed() -> None:
    line = '2026-03-01 10:00:00 {} pool: waiting for the backend, status="server error"\n'
    assert classify(line.format("INFO"), channel="log").reason.value == "unknown"
    assert classify(line.format("ERROR"), channel="log").reason.value == "overloaded"


def test_a_claim_in_a_plain_line_is_not_acted_on_alone() -> None:
    """The form of a line is weaker evidence than an error."""
    alone = classify("Being rate limited by the model host.", channel="tui")
    error = classify("Error: being rate limited by the model host.", channel="tui")
    assert alone.reason.value == error.reason.value == "rate_limit"
    assert alone.confidence < 0.8 <= error.confidence
