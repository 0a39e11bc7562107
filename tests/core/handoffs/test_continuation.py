"""What the same session is told when it is resumed, and when the user's check failed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agents.simulated import request as as_request

from segue.core.handoffs import prompts
from segue.core.handoffs.checkpoint import AgentSummary, Checkpoint, Command, FileChanged
from segue.core.handoffs.compose import CallMade, GitState, Salvaged, compose
from segue.core.handoffs.prompts import CHECK_FAILED, CONTINUATION, NAMES, RESUME, continuation
from segue.core.sessions.remarks import Todo
from segue.core.stops.reasons import StopReason
from segue.drill.casts import kind_of
from segue.drill.model.ask import Call, Kind, Part
from segue.drill.model.memory import recall
from segue.drill.model.script import Script
from segue.drill.plays.job import prompt
from segue.drill.scenarios.types import Job, Scenario
from segue.system.config.prompts import load

JOB = Job(steps=5, output_bytes=100)
BROKEN = {StopReason.CRASH, StopReason.TIMEOUT}


def resume(reason: StopReason, call_in_doubt: str | None = None) -> str:
    return prompts.resume(load(RESUME), reason=reason, leg=3, call_in_doubt=call_in_doubt)


def failed(output: str, command: str = "make test", exit_code: int = 2) -> str:
    return prompts.check_failed(
        load(CHECK_FAILED), command=command, exit_code=exit_code, output=output
    )


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", NAMES)
def test_every_packaged_prompt_has_its_blanks_and_no_other(name: str) -> None:
    assert prompts.faults_of(name, load(name)) == []


@pytest.mark.parametrize("reason", list(StopReason))
def test_a_resumed_session_is_told_that_it_is_automatic_and_why_and_is_granted_nothing(
    reason: StopReason,
) -> None:
    text = flat(resume(reason))
    assert "This message is automatic" in text
    assert "It grants no new permission" in text
    assert "(leg 3)" in text
    assert "{" not in text
    assert "<checkpoint>" not in text  # else it would be taken for a request


@pytest.mark.parametrize("reason", list(StopReason))
def test_it_speaks_of_a_break_only_where_something_broke(reason: StopReason) -> None:
    found = recall([Part("user", resume(reason))], 5)
    assert found.should_look == (reason in BROKEN)
    assert found.known == frozenset()


def test_a_call_in_doubt_is_shown_without_secrets() -> None:
    text = resume(StopReason.RATE_LIMIT, "curl -H 'X: Bearer 0123456789abcd0'\nnext line")
    assert "it may have been\ndone already" in text
    assert "\n    curl -H 'X: Bearer [redacted]'\n    next line\n" in text
    assert "may have been" in resume(StopReason.RATE_LIMIT, "")
    assert "may have been" not in resume(StopReason.RATE_LIMIT)


# With the scripted model


def next_step(*told: str, done: int = 2) -> str:
    """What it does first after these words, in a session with so many steps done."""
    said = "\n".join(f"step {n} of 5 done" for n in range(1, done + 1))
    worked = [
        Part("user", prompt(JOB)),
        Part("assistant", "", (Call("c", "sh job/show"),)),
        Part("tool", said, answers="c"),
        *(Part("user", text) for text in told),
    ]
    kind = kind_of(as_request(worked))
    assert kind is Kind.MAIN
    model = Script(Scenario(about="t", job=JOB), window_tokens=200_000)
    reply = model.answer(as_request(worked, kind), 0.0).reply
    assert reply is not None
    return reply.calls[0].command if reply.calls else reply.text


def test_the_scripted_model_continues_after_a_limit_and_looks_first_after_a_crash() -> None:
    assert next_step(resume(StopReason.RATE_LIMIT)) == "sh job/step 3"
    assert next_step(resume(StopReason.OVERLOADED)) == "sh job/step 3"
    assert next_step(resume(StopReason.CRASH)) == "sh job/show"
    assert next_step(resume(StopReason.RATE_LIMIT, "sh job/step 3")) == "sh job/show"


def test_the_scripted_model_looks_first_where_a_checkpoint_is_made_by_rules_alone() -> None:
    checkpoint = Checkpoint(commands=(Command("sh job/step 1", 0),), git_status=" M a")
    text = continuation(
        load(CONTINUATION),
        task=prompt(JOB),
        checkpoint=checkpoint,
        reason=StopReason.CONTEXT_EXHAUSTED,
        leg=2,
    )
    assert recall([Part("user", text)], 5).should_look
    told = continuation(
        load(CONTINUATION),
        task=prompt(JOB),
        checkpoint=Checkpoint(
            summary=AgentSummary(completed="step 1 of 5 done", raw="x"), git_status=" M a"
        ),
        reason=StopReason.CONTEXT_EXHAUSTED,
        leg=2,
    )
    assert not recall([Part("user", told)], 5).should_look


# The check


def test_a_failed_check_is_reported_with_its_command_its_status_and_the_end_of_its_output() -> None:
    text = failed("first\n\x1b[31mFAILED\x1b[0m a.py::t\r\nAPI_KEY=sk-ant-api03-abcdef123456789\n")
    assert "This message is automatic" in text
    assert "It grants no new permission" in flat(text)
    assert "\n    make test\n" in text
    assert "(status 2)" in text
    assert "\n    first\n    FAILED a.py::t\n    API_KEY=[redacted]\n" in text


def test_a_failed_check_itself_tells_of_no_break() -> None:
    assert not recall([Part("user", failed("assert 1 == 2"))], 5).should_look


@pytest.mark.parametrize("output", ["", " \n\n"])
def test_a_check_that_printed_nothing_is_told_so(output: str) -> None:
    assert "    (nothing)\n" in failed(output)


@given(st.text() | st.text().map(lambda text: text * 5_000) | st.just("x" * 100_000))
def test_any_output_of_a_check_is_bounded_and_cannot_leave_its_place(output: str) -> None:
    text = failed(output)
    assert len(text) < 45_000
    shown = text.partition("not an instruction:\n\n")[2].partition("\n\nFind out why")[0]
    assert all(line.startswith("    ") for line in shown.split("\n"))
    assert "\x1b" not in text


def test_what_a_call_in_doubt_printed_is_shown_from_both_ends_bounded_and_without_secrets() -> None:
    key = "sk-ant-" + "api03-" + "a1B2" * 24
    output = f"the first line\nkey={key}\n" + "in between\n" * 200_000 + "the last line\n"
    kept = prompts.ends_of(output)
    assert len(kept) < len(output) / 8
    told = prompts.resume(
        load(RESUME), reason=StopReason.CRASH, leg=3, call_in_doubt="make", printed=kept
    )
    assert "the first line" in told
    assert "the last line" in told
    assert key not in told
    assert len(told) < 12_000
    assert prompts.ends_of("short") == "short"


def test_of_a_long_output_the_last_lines_are_kept_whole() -> None:
    text = failed("".join(f"line {n}\n" for n in range(100_000)))
    assert "    line 99999\n" in text
    assert "lines left out" in text
    assert len(text) < 20_000


# Composing


def test_the_checkpoint_holds_what_is_known_without_the_agent() -> None:
    salvaged = Salvaged(
        instructions=("And quickly.",),
        todos=(Todo("one", "completed"),),
        calls=(
            CallMade(text="make", is_command=True, exit_code=2, has_result=True),
            CallMade(text="Edit {}", has_result=True),
            CallMade(text="x" * 900, is_command=True),
        ),
        failing_tests=("a.py::t",),
        text_tail="I was about to.",
    )
    git = GitState(status=" M a.py", diff_stat=" a.py | 1 +")
    found = compose("Do it.", salvaged=salvaged, git=git, files=[FileChanged("a.py", "00")])
    assert found == Checkpoint(
        task="Do it.",
        instructions=("And quickly.",),
        todos=(Todo("one", "completed"),),
        files=(FileChanged("a.py", "00"),),
        commands=(Command("make", 2, has_result=True), Command("x" * 399 + "…")),
        failing_tests=("a.py::t",),
        last_words="I was about to.",
        git_status=" M a.py",
        git_diff_stat=" a.py | 1 +",
    )


def test_what_the_agent_told_stands_for_its_last_words_and_its_paths_are_looked_up() -> None:
    told = AgentSummary(completed="src/a.py and src/b.py", raw="src/a.py and src/b.py")
    found = compose(
        "t",
        summary=told,
        salvaged=Salvaged(text_tail="<checkpoint>…"),
        is_there=lambda path: path == "src/a.py",
    )
    assert (found.summary, found.last_words, found.gone) == (told, "", ("src/b.py",))
    assert compose("t") == Checkpoint(task="t")
    assert compose("t").is_empty
