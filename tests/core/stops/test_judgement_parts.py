"""Parts of a judgement: dialogs, signs weighed together, near neighbours, front matter."""

import pytest

from segue import api
from segue.agents.ending import Channel, Ending, Source
from segue.core.stops import composition
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Evidence, Rank, Sign, Stop, Strength


def judged(text: str, channel: Channel = "tui", name: str = "x", **known: int) -> Stop:
    source = Source(text=text, channel=channel, name=name)
    return api.examine(Ending(sources=(source,), exit_code=known.get("exit_code")), now=0.0).stop


DIALOGS = (
    "Allow execution of 3 commands?\n\n● 1. Allow once\n  2. Allow for this session\n  3. No (esc)",
    "  Would you like to grant these permissions?\n\n› 1. Yes (y)\n  2. No (n)\n\n"
    "  Press enter to confirm or esc to cancel",
    "Select your preferred language:\n\n  1.  TypeScript\n● 2.  JavaScript\n\n"
    "Enter to submit · Esc to cancel",
    "Add file to the chat? (Y)es/(N)o/(D)on't ask again [Yes]:",
    "Are you sure you want to continue connecting (yes/no/[fingerprint])?",
)
NO_DIALOGS = (
    "The plan:\n\n1. Yes, rename the module\n2. Write the test\n3. Run it",
    "Do you want to know why? It is simple: the cache was stale.\n\nI fixed it and ran all tests.",
    "Press esc to go back and enter to edit the last message.",
)


@pytest.mark.parametrize("screen", DIALOGS)
def test_a_screen_that_ends_in_a_question_waits_for_the_user(screen: str) -> None:
    assert judged(screen).reason is StopReason.NEEDS_USER


@pytest.mark.parametrize("screen", NO_DIALOGS)
def test_a_list_is_not_a_dialog(screen: str) -> None:
    assert judged(screen).reason is not StopReason.NEEDS_USER


def test_a_limit_above_a_menu_is_the_reason() -> None:
    limit = "You've hit your limit · resets 3pm"
    menu = f"{limit}\n\nWhat do you want to do?\n❯ 1. Stop and wait\n  2. Cancel"
    assert judged(f"{menu}\n\nEnter to confirm · Esc to cancel").reason is StopReason.RATE_LIMIT


def sign(reason: StopReason, strength: Strength, rule: str = "x.y") -> Sign:
    evidence = Evidence(rule, "q", "w")
    return Sign(reason=reason, rank=Rank.TEXT, strength=strength, evidence=evidence)


R, S = StopReason, Strength


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (sign(R.TIMEOUT, S.SENTENCE), sign(R.OVERLOADED, S.SENTENCE)),  # the cause
        (sign(R.CRASH, S.SENTENCE), sign(R.OVERLOADED, S.SENTENCE)),
        (sign(R.BILLING, S.SENTENCE), sign(R.RATE_LIMIT, S.CODE)),  # the stronger
        (sign(R.AUTH, S.SENTENCE), sign(R.RATE_LIMIT, S.SENTENCE, "family.x")),  # the exact
        (sign(R.RATE_LIMIT, S.SENTENCE), sign(R.AUTH, S.SENTENCE)),  # the order of reasons
    ],
)
def test_which_of_two_signs_decides(first: Sign, second: Sign) -> None:
    assert composition.ordered([second, first])[0] is first
    assert composition.ordered([first, second])[0] is first


def test_what_more_kinds_of_evidence_agree_on_decides_between_equals() -> None:
    signs = [sign(R.RATE_LIMIT, S.SENTENCE), sign(R.AUTH, S.SENTENCE), sign(R.AUTH, S.CODE)]
    assert composition.ordered(signs)[0].reason is R.AUTH


NEIGHBOURS = (
    ("stream disconnected before completion: idle timeout waiting for SSE", "timeout"),
    ("unexpected status 504 Gateway Timeout: upstream connect error", "timeout"),
    ("context deadline exceeded", "timeout"),
    ("API Error: 524 <html><title>x | 524: A timeout occurred</title>", "timeout"),
    ("stream disconnected before completion: error decoding response body", "overloaded"),
    ("Error: connect ECONNREFUSED 127.0.0.1:443", "overloaded"),
    ("BadRequestError: max_tokens must be at least 1, got -7584.", "context_exhausted"),
    ("Prompt tokens limit exceeded: 230799 > 91442. To increase, visit https://x", "billing"),
    ("Error: The model `x` does not exist", "error"),
    ("API Error: 400 image exceeds 5 MB maximum", "error"),
    ("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.", "crash"),
    ("Opening authentication page in your browser. Do you want to continue? [Y/n]", "auth"),
    ("Error: Recursion limit of 50 reached without hitting a stop condition.", "max_turns"),
)


@pytest.mark.parametrize(("text", "reason"), NEIGHBOURS)
def test_near_neighbours_are_told_apart(text: str, reason: str) -> None:
    assert judged(text).reason.value == reason


ABOUT = (
    '## 1.2.3\n\n- Fixed: "rate limit exceeded" is retried (#12)\n- Handle context_length_exceeded',
    "The server returns 429 when the rate limit is exceeded, and 503 when it is overloaded.",
    '  "en": "Rate limit exceeded.",\n  "fr": "Limite de débit dépassée.",',
    'INFO: 127.0.0.1 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    "● The outage was caused by a timeout in the gateway: the upstream server was overloaded.",
    "export interface RateLimitError {\n  message: string;\n\n  type: 'rate_limit_error';\n}",
    'When a reset is known, the answer now has:\n\n{\n  "error": {"type": "rate_limit_error"}\n}',
    'Failed to generate session description: RateLimitExceeded("x")',
    "Causes & fixes\nPrompt text is too long and exceeds the model's maximum token limit.",
)


@pytest.mark.parametrize("text", ABOUT)
@pytest.mark.parametrize("channel", ["stdout", "tui"])
def test_a_text_about_stops_is_not_a_stop(text: str, channel: Channel) -> None:
    assert judged(text, channel).reason is StopReason.UNKNOWN


ERROR = 'Error: 400 {"code": "context_length_exceeded"}'


@pytest.mark.parametrize(
    "front", ["stepsCompleted: [1, 2\nlastStep: : :\n---", "stepsCompleted: [1]"]
)
def test_a_session_with_broken_front_matter_is_still_read_for_errors(front: str) -> None:
    stop = judged(f"---\n{front}\n# Notes\n\n{ERROR}\n", "transcript", "s.md")
    assert stop.reason is StopReason.CONTEXT_EXHAUSTED


@pytest.mark.parametrize("word", ["/bye", "quit", "done", "> exit", "goodbye"])
def test_a_lone_word_of_leaving_with_exit_code_0_is_the_users_exit(word: str) -> None:
    assert judged(f"{word}\n", "stdout", exit_code=0).reason is StopReason.USER_EXIT


def test_a_lone_word_after_a_failure_is_the_failure() -> None:
    assert judged("done\n", "stdout", exit_code=1).reason is StopReason.ERROR


def test_a_word_of_leaving_in_an_answer_is_not_an_exit() -> None:
    assert judged("The work is\ndone\n", "stdout", exit_code=0).reason is StopReason.COMPLETED


def test_the_next_step_of_a_workflow_is_shown() -> None:
    front = "---\nstepsCompleted: [1, 2]\nlastStep: 2\ntotalSteps: 4\n---\n# Notes\n"
    assert "the next step is 3 of 4" in judged(front, "transcript", "s.md").notes
    named = "---\nstepsCompleted: [plan]\ntotalSteps: [plan, build]\n---\n"
    assert "the next step is build" in judged(named, "transcript", "s.md").notes


def test_an_unknown_is_as_sure_as_unknowns_are() -> None:
    assert 0.15 < judged("The parser has two passes.").confidence < 0.95
    assert judged("```\nnobody.speaks()\n```").confidence == pytest.approx(0.95)
    assert judged("").confidence == 0.5
