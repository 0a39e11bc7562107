"""The scripted model: honest, by rules, and with a window that fills because it is filled."""

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.agents.simulated import Agent, request, result, supervise

from segue.core.sessions.spend import Spend
from segue.drill.model.answer import ModelAnswer, ModelReply, Refusal
from segue.drill.model.ask import Ask, Call, Kind, Part
from segue.drill.model.script import Script
from segue.drill.scenarios.types import Context, Job, Scenario, ScenarioFact, ScenarioRule

NOW = 1_800_000_000.0
PROMPT = Part("user", "Do the job of 5 numbered steps.")


def script(**keys: Any) -> Script:
    keys.setdefault("job", Job(steps=5, output_bytes=100))
    return Script(Scenario(about="a test", **keys), window_tokens=200_000)


def marker(step: int, of: int = 5) -> str:
    return f"step {step} of {of} done"


def called(step: int, *after: Part) -> list[Part]:
    """Steps below it are done, and it was called."""
    call = Call("c", f"sh job/step {step}")
    known = "\n".join(marker(n) for n in range(1, step))
    return [PROMPT, Part("user", known), Part("assistant", "", (call,)), *after]


def what(answer: ModelAnswer) -> str:
    """The command, or the text; or the fault."""
    if answer.refusal:
        return f"!{answer.refusal.fault}"
    assert answer.reply is not None
    return answer.reply.calls[0].command if answer.reply.calls else answer.reply.text


def asked(model: Script, parts: list[Part], kind: Kind = Kind.MAIN, now: float = NOW) -> str:
    return what(model.answer(request(parts, kind), now))


# What it knows


def test_a_session_that_knows_nothing_starts_with_step_1() -> None:
    model = script()
    assert asked(model, [PROMPT]) == "sh job/step 1"
    assert model.last == "step 1"
    assert asked(model, [PROMPT]) == "sh job/step 1"  # it has no memory of its own


@pytest.mark.parametrize("role", ["user", "tool", "assistant", "system"])
def test_it_takes_a_step_for_done_wherever_it_is(role: Any) -> None:
    text = f"- {marker(1)}\n- {marker(2)}, {marker(4)}."
    assert asked(script(), [PROMPT, Part(role, text)]) == "sh job/step 3"


def test_steps_of_another_job_are_none_of_its_own() -> None:
    assert asked(script(), [PROMPT, Part("user", marker(1, of=6))]) == "sh job/step 1"
    assert asked(script(), [PROMPT, Part("user", "step 7 of 5 done")]) == "sh job/step 1"


def test_when_all_are_known_it_ends() -> None:
    model = script()
    text = " ".join(marker(n) for n in range(1, 6))
    reply = model.answer(request([PROMPT, Part("tool", text)]), NOW).reply
    assert reply is not None
    assert (reply.text, reply.calls, reply.ends_with) == ("All 5 steps are done.", (), "end")
    assert model.last == "end"


BROKEN = [
    [Part("tool", "[Tool call interrupted: the session ended before this call's result…]")],
    [Part("tool", "[Tool execution was interrupted]"), Part("user", "Go on.")],
    [Part("tool", "aborted"), Part("user", "<turn_aborted>"), Part("user", "Go on.")],
    [Part("tool", "No result provided", is_error=True)],
    [Part("tool", "Exit code 137", is_error=False)],
    [Part("tool", "The user doesn't want to proceed with this tool use."), Part("user", "go")],
    [Part("tool", "anything", is_error=True)],
    [Part("assistant", "No response requested."), Part("user", "The session was interrupted.")],
]


@pytest.mark.parametrize("after", BROKEN, ids=lambda after: after[0].text[:20])
def test_told_of_a_call_that_broke_off_it_looks_what_is_there(after: list[Part]) -> None:
    model = script()
    parts = called(3, *after)
    assert asked(model, parts) == "sh job/show"
    assert model.last == "look"
    look = Part("assistant", "", (Call("d", "sh job/show"),))
    for shown, then in ((2, "sh job/step 3"), (3, "sh job/step 4")):
        told = "\n".join(marker(n) for n in range(1, shown + 1))
        assert asked(model, [*parts, look, result(look.calls[0], told)]) == then


def test_a_step_that_is_done_is_done_whatever_else_its_result_says() -> None:
    told = f"Exit code 1\n{marker(3)}"
    assert asked(script(), called(3, Part("tool", told, is_error=True))) == "sh job/step 4"


def test_told_that_the_session_broke_off_it_looks_even_if_the_last_result_is_there() -> None:
    parts = called(3, Part("tool", marker(3)), Part("user", "You were killed. Go on."))
    assert asked(script(), parts) == "sh job/show"


def test_of_what_a_session_starts_with_only_the_newest_word_tells_of_a_break() -> None:
    reminder = Part("user", "Calls of tools may be cancelled or interrupted by the user.")
    assert asked(script(), [reminder, PROMPT]) == "sh job/step 1"
    assert asked(script(), [PROMPT, Part("user", "It was interrupted.")]) == "sh job/show"


def test_the_exit_code_of_a_success_is_not_a_break() -> None:
    for text in ("Exit code: 0", "Process exited with code 0", "exit_code: 0"):
        assert asked(script(), called(3, Part("tool", f"{text}\n{marker(3)}"))) == "sh job/step 4"
        assert asked(script(), called(3, Part("tool", text))) == "sh job/step 3"


def test_a_step_that_fails_again_and_again_is_given_up() -> None:
    parts = [PROMPT]
    model = script()
    commands: list[str] = []
    while len(commands) < 20:
        reply = model.answer(request(parts), NOW).reply
        assert reply is not None
        commands.append(what(ModelAnswer(reply=reply)))
        if not reply.calls:
            break
        parts += [Part("assistant", "", reply.calls), result(reply.calls[0], "no", is_error=True)]
    assert commands.count("sh job/step 1") == 3
    assert model.last == "gives up"


def test_a_step_that_was_given_up_is_done_once_what_it_needs_is_told() -> None:
    fact = ScenarioFact(kind="printed", told_in=1, needed_from=2)
    model = script(job=Job(steps=5, output_bytes=100, facts=[fact]))
    tries = [Part("user", marker(1))]
    for _ in range(3):
        tries += [Part("assistant", "", (Call("c", "sh job/step 2"),)), Part("tool", "needs it")]
    assert asked(model, [PROMPT, *tries]).startswith("The next step fails again")
    told = Part("user", "fact 1 is w1234567")
    assert asked(model, [PROMPT, *tries, told]) == "sh job/step 2 w1234567"


def test_calls_have_the_agents_own_tool_and_an_id_that_is_new() -> None:
    model = script()
    taken = Part("assistant", "", (Call("call_0_0001", "ls"),))
    ask = replace(request([PROMPT, taken]), tools=("read", "exec_command"))
    answer = model.answer(ask, NOW)
    assert answer.reply is not None
    (call,) = answer.reply.calls
    assert (call.name, call.arguments) == ("exec_command", {"cmd": "sh job/step 1"})
    assert call.id == "call_0_0002"


# What it says beside its work


def known(*steps: int) -> list[Part]:
    return [PROMPT, Part("tool", "\n".join(marker(n) for n in steps))]


@pytest.mark.parametrize(
    ("wish", "start", "end"),
    [
        ("… in <analysis> tags … a <summary> block", "<analysis>", "</summary>"),
        ("write the <state_snapshot>", "<state_snapshot>", "</state_snapshot>"),
        ("Summarize the conversation.", "The job", "done"),
    ],
)
def test_a_summary_has_the_form_that_is_asked_for(wish: str, start: str, end: str) -> None:
    model = script()
    said = asked(model, [*known(1, 2), Part("user", wish)], Kind.COMPACTION)
    assert said.startswith(start)
    assert said.endswith(end)
    assert model.last == "summary"
    assert asked(model, [PROMPT, Part("user", said)]) == "sh job/step 3"


@pytest.mark.parametrize("kind", [Kind.COMPACTION, Kind.CHECKPOINT])
def test_what_it_keeps_is_all_it_knows_or_nothing(kind: Kind) -> None:
    for summary, then in (("faithful", "sh job/step 4"), ("forgets", "sh job/step 1")):
        model = script(summary=summary)
        said = asked(model, known(1, 2, 3), kind)
        assert asked(model, [PROMPT, Part("user", said)]) == then


def test_a_checkpoint_has_its_headings() -> None:
    said = asked(script(), known(1, 2), Kind.CHECKPOINT)
    assert said.startswith("<checkpoint>")
    for heading in ("Goal", "Completed work", "Remaining tasks", "Do not redo", "Key decisions"):
        assert f"\n## {heading}\n" in said


def test_a_title_is_three_words() -> None:
    assert len(asked(script(), [PROMPT], Kind.TITLE).split()) == 3


# Rules


def test_a_rule_goes_before_the_models_own_answer_once() -> None:
    model = script(rules=[ScenarioRule(fault="overloaded")])
    assert [asked(model, [PROMPT]) for _ in range(3)] == ["!overloaded", *["sh job/step 1"] * 2]


def test_the_first_rule_that_fits_counts() -> None:
    model = script(
        rules=[
            ScenarioRule(fault="auth", before_step=3),
            ScenarioRule(fault="billing", times=2),
            ScenarioRule(text="x"),
        ]
    )
    assert [asked(model, [PROMPT]) for _ in range(3)] == ["!billing", "!billing", "x"]
    assert asked(model, known(1, 2)) == "!auth"


def test_for_ever_is_for_ever() -> None:
    model = script(rules=[ScenarioRule(fault="auth", times=None)])
    assert {asked(model, [PROMPT]) for _ in range(50)} == {"!auth"}


def test_a_rule_waits_for_its_step_and_for_its_number_of_requests() -> None:
    model = script(
        rules=[
            ScenarioRule(fault="auth", before_step=2),
            ScenarioRule(fault="billing", after_requests=3),
        ]
    )
    heard = [asked(model, known(*range(1, n))) for n in (1, 2, 2, 3, 4)]
    assert heard == ["sh job/step 1", "!auth", "sh job/step 2", "!billing", "sh job/step 4"]


def test_a_rule_is_for_its_kind_and_the_works_for_continuations_too() -> None:
    model = script(
        rules=[
            ScenarioRule(fault="auth", times=None),
            ScenarioRule(kind=Kind.TITLE, fault="billing"),
        ]
    )
    assert asked(model, [PROMPT], Kind.CONTINUATION) == "!auth"
    assert asked(model, [PROMPT], Kind.TITLE) == "!billing"
    assert not asked(model, [PROMPT], Kind.COMPACTION).startswith("!")
    only = script(rules=[ScenarioRule(kind=Kind.CONTINUATION, fault="auth", times=None)])
    assert asked(only, [PROMPT]) == "sh job/step 1"
    assert asked(only, [PROMPT], Kind.CONTINUATION) == "!auth"


def refusal(model: Script, now: float, kind: Kind = Kind.MAIN) -> Refusal | None:
    return model.answer(request([PROMPT], kind), now).refusal


def test_a_plans_limit_holds_for_every_request_until_its_reset() -> None:
    model = script(rules=[ScenarioRule(fault="plan_limit", resets_in_s=8)])
    first = refusal(model, NOW + 0.5)
    assert first is not None
    assert first.resets_at == NOW + 9  # whole seconds, as an API says them
    for later, kind in ((1.0, Kind.MAIN), (8.9, Kind.MAIN), (8.9, Kind.COMPACTION)):
        assert refusal(model, NOW + later, kind) == first
    assert refusal(model, NOW + 9) is None
    assert refusal(model, NOW + 10) is None


def test_who_comes_back_too_early_is_told_to_wait_for_the_rest() -> None:
    model = script(rules=[ScenarioRule(fault="rate_limit", retry_after_s=5, times=2)])
    told = [refusal(model, NOW + later) for later in (0.0, 2.5, 5.0, 10.0)]
    assert [r and r.retry_after_s for r in told] == [5.0, 3.0, 5.0, None]


def test_status_body_and_headers_are_handed_on() -> None:
    model = script(rules=[ScenarioRule(status=418, body="{}", headers={"x-a": "b"}, message="m")])
    found = refusal(model, NOW)
    assert found == Refusal(status=418, body="{}", headers={"x-a": "b"}, message="m")
    assert model.last == "status 418"


def test_a_rule_that_calls_it_too_long_says_more_than_the_window() -> None:
    found = refusal(script(rules=[ScenarioRule(fault="too_long")]), NOW)
    assert found is not None
    assert found.window_tokens == 200_000
    assert found.used_tokens is not None
    assert found.used_tokens > 200_000


def test_delivery_alone_sends_its_own_reply_that_way() -> None:
    model = script(rules=[ScenarioRule(delivery="drop_midway", delay_s=1.5, before_step=1)])
    answer = model.answer(request([PROMPT]), NOW)
    assert (answer.delivery, answer.delay_s) == ("drop_midway", 1.5)
    assert what(answer) == "sh job/step 1"
    assert model.last == "step 1"
    assert model.answer(request([PROMPT]), NOW).delivery == "whole"


def test_a_reply_can_be_replaced_stopped_and_charged() -> None:
    spend = Spend(input_tokens=7, cache_read_tokens=170_000, output_tokens=3)
    model = script(
        rules=[
            ScenarioRule(text="t", command="ls"),
            ScenarioRule(stop="length"),
            ScenarioRule(usage=spend),
        ]
    )
    replies = [model.answer(request([PROMPT]), NOW).reply for _ in range(3)]
    first, second, third = (reply or ModelReply() for reply in replies)
    assert (first.text, first.calls[0].command, first.ends_with) == ("t", "ls", "tool")
    assert (second.calls, second.ends_with) == ((), "length")
    assert (third.spend, third.calls[0].command) == (spend, "sh job/step 1")


def test_turns_come_in_order_and_a_lost_one_comes_again() -> None:
    spend = Spend(input_tokens=5, output_tokens=1)
    turns = [
        ModelReply(calls=(Call("", "ls"), Call("", "pwd"))),
        ModelReply(text="second", spend=spend),
    ]
    model = script(turns=turns, rules=[ScenarioRule(delivery="drop", after_requests=1)])
    replies = [model.answer(request([PROMPT]), NOW).reply or ModelReply() for _ in range(4)]
    assert [call.command for call in replies[0].calls] == ["ls", "pwd"]
    assert len({call.id for call in replies[0].calls}) == 2
    assert replies[0].calls[0].name == "Bash"
    assert [r.text for r in replies[1:]] == ["second", "second", "Done."]
    assert replies[1].spend == spend
    assert asked(model, [PROMPT], Kind.TITLE) != "Done."


# The window


@given(
    fills=st.floats(1.5, 12),
    window=st.sampled_from([20_000, 128_000, 200_000, 1_048_576]),
    around=st.integers(0, 900),
    output=st.integers(0, 5_000),
    has_spike=st.booleans(),
)
def test_it_is_full_after_as_many_steps_as_the_scenario_says(
    fills: float, window: int, around: int, output: int, has_spike: bool
) -> None:
    spike = math.ceil(fills) if has_spike else None
    job = Job(steps=15, output_bytes=output, spike_step=spike)
    # What is printed is nearly all that a step adds; else a number's digits count.
    assume(output + around > 500 and abs(fills - round(fills)) > 0.25)
    scenario = Scenario(about="t", job=job, context=Context(fills_after_steps=fills))
    agent = Agent(scenario, window, around)
    while (answer := agent.ask()).reply:
        assert answer.reply.spend.total_tokens - answer.reply.spend.output_tokens <= window
        agent.take(answer.reply)
    assert answer.refusal is not None
    assert answer.refusal.fault == "too_long"
    assert answer.refusal.window_tokens == window
    assert (answer.refusal.used_tokens or 0) > window
    assert len(agent.world.done) == math.ceil(fills)


def test_a_compacted_conversation_is_small_again() -> None:
    agent = Agent(Scenario(about="t", job=Job(steps=15), context=Context(fills_after_steps=6.5)))
    while (answer := agent.ask()).reply:
        agent.take(answer.reply)
    full = agent.script.gauge.used_tokens
    agent.start_again("\n".join(marker(n, of=15) for n in agent.world.done))
    again = agent.ask()
    assert what(again) == "sh job/step 8"
    assert agent.script.gauge.used_tokens < full * 0.15
    assert again.reply is not None
    assert again.reply.spend.cache_read_tokens == 10_000  # the instructions, as before


def test_a_spike_is_small_before_and_over_the_window_after() -> None:
    job = Job(steps=10, output_bytes=300, spike_step=6, spike_bytes=20_000)
    agent = Agent(Scenario(about="t", job=job, context=Context(fills_after_steps=5.9)))
    sizes = []
    while (answer := agent.ask()).reply:
        sizes.append(agent.script.gauge.used_tokens)
        agent.take(answer.reply)
    assert agent.world.done == [1, 2, 3, 4, 5, 6]
    assert max(sizes) < 60_000
    assert agent.script.gauge.is_over


def test_without_a_context_it_counts_and_refuses_nothing() -> None:
    agent = Agent(Scenario(about="t", job=Job(steps=3, output_bytes=50_000)), 20_000)
    assert supervise(agent) == "done"
    assert agent.script.gauge.used_tokens == pytest.approx((40_000 + 150_000) / 4, rel=0.02)


def test_a_context_that_does_not_refuse_only_counts() -> None:
    context = Context(fills_after_steps=2.5, refuses=False)
    agent = Agent(Scenario(about="t", job=Job(steps=6), context=context))
    assert supervise(agent) == "done"
    assert agent.peak_tokens > 300_000


def test_the_scenarios_window_goes_before_the_agents() -> None:
    model = script(context=Context(window_tokens=9_000))
    assert asked(model, [PROMPT]) == "!too_long"
    assert model.gauge.window_tokens == 9_000


def test_a_summary_of_what_is_too_long_is_refused_too() -> None:
    model = script(context=Context(window_tokens=9_000))
    assert asked(model, [PROMPT], Kind.COMPACTION) == "!too_long"
    assert asked(model, [PROMPT], Kind.TITLE) != ""


def test_a_rule_that_fits_goes_before_the_window() -> None:
    model = script(context=Context(window_tokens=9_000), rules=[ScenarioRule(fault="overloaded")])
    assert [asked(model, [PROMPT]) for _ in range(2)] == ["!overloaded", "!too_long"]


def test_a_count_is_what_the_same_request_is_charged() -> None:
    agent = Agent(Scenario(about="t", job=Job(steps=9), context=Context(fills_after_steps=7.5)))
    for _ in range(4):
        reply = agent.ask().reply
        assert reply is not None
        assert (
            agent.ask(Kind.COUNT).input_tokens
            == reply.spend.total_tokens - reply.spend.output_tokens
        )
        agent.take(reply)


def test_what_was_sent_before_comes_from_the_cache() -> None:
    agent = Agent(Scenario(about="t", job=Job(steps=9), context=Context(fills_after_steps=7.5)))
    before = 0
    for _ in range(6):
        reply = agent.ask().reply
        assert reply is not None
        spend = reply.spend
        assert spend.cache_read_tokens == before
        assert spend.input_tokens <= 10
        assert spend.output_tokens > 0
        before = spend.total_tokens - spend.output_tokens
        agent.take(reply)


# An agent that obeys


faults = st.lists(
    st.builds(
        ScenarioRule,
        before_step=st.integers(1, 12),
        times=st.integers(1, 3),
        fault=st.sampled_from(["rate_limit", "overloaded", "server_error", "plan_limit"]),
        retry_after_s=st.none() | st.floats(0, 20),
        resets_in_s=st.none() | st.floats(0, 20),
    )
    | st.builds(
        ScenarioRule,
        before_step=st.integers(1, 12),
        times=st.integers(1, 3),
        delivery=st.sampled_from(["drop", "hang", "drop_midway", "unfinished", "trickle"]),
    ),
    max_size=4,
)


@given(
    steps=st.integers(1, 12),
    fills=st.none() | st.floats(1.5, 14),
    rules=faults,
    breaks=st.dictionaries(st.integers(1, 12), st.booleans(), max_size=4),
)
def test_an_agent_that_obeys_finishes_each_step_once_whatever_happens(
    steps: int, fills: float | None, rules: list[ScenarioRule], breaks: dict[int, bool]
) -> None:
    """`breaks`: in this step the call is interrupted, before the step was done or after."""
    context = None if fills is None else Context(fills_after_steps=fills)
    agent = Agent(Scenario(about="t", job=Job(steps=steps), context=context, rules=rules))

    def on_call(call: Call) -> Part | None:
        step = call.command.rpartition(" ")[2]
        if not step.isdigit() or int(step) not in breaks:
            return None
        if breaks.pop(int(step)):
            agent.world.run(call.command)
        return result(call, "[Tool execution was interrupted]", is_error=True)

    agent.on_call = on_call
    assert supervise(agent) == "done"
    assert agent.world.check(finished=True).is_whole


@given(steps=st.integers(3, 12), fills=st.floats(1.5, 8))
def test_one_that_forgets_repeats_and_one_that_does_not_look_does_too(
    steps: int, fills: float
) -> None:
    assume(fills < steps - 1)
    forgetful = Agent(
        Scenario(about="t", job=Job(steps=steps), context=Context(fills_after_steps=fills))
    )
    while (answer := forgetful.ask()).reply:
        forgetful.take(answer.reply)
    forgetful.start_again("Go on.")
    reply = forgetful.ask().reply
    assert reply is not None
    forgetful.take(reply)
    assert forgetful.world.check(finished=False).repeated == (1,)

    blind = Agent(Scenario(about="t", job=Job(steps=steps)))
    # The step was done, but its result is lost without a word.
    first = True

    def on_call(call: Call) -> Part | None:
        nonlocal first
        text = blind.world.run(call.command)
        told, first = ("" if first else text), False
        return result(call, told)

    blind.on_call = on_call
    assert supervise(blind) == "done"
    assert blind.world.check(finished=True).repeated == (1,)


@given(st.lists(st.sampled_from(list(Kind)), max_size=8), faults)
def test_the_same_requests_get_the_same_answers(
    kinds: list[Kind], rules: list[ScenarioRule]
) -> None:
    one, two = (script(rules=rules, context=Context(fills_after_steps=3)) for _ in range(2))
    for number, kind in enumerate(kinds):
        ask = request(known(*range(1, number % 5)), kind)
        assert one.answer(ask, NOW + number) == two.answer(ask, NOW + number)
        assert one.last == two.last


@given(
    st.lists(
        st.builds(
            Part,
            st.sampled_from(["system", "user", "assistant", "tool"]),
            st.text(max_size=60) | st.integers(0, 9).map(lambda n: f"step {n} of 5 done"),
            st.lists(st.builds(Call, st.text(max_size=5), st.text(max_size=20)), max_size=2).map(
                tuple
            ),
            is_error=st.booleans(),
        ),
        max_size=8,
    ),
    st.sampled_from(list(Kind)),
    st.integers(0, 10**9),
)
def test_any_conversation_gets_an_answer(parts: list[Part], kind: Kind, said: int) -> None:
    model = script(context=Context(fills_after_steps=3))
    for _ in range(2):
        ask = Ask(wire="w", model="m", parts=tuple(parts), kind=kind, said_bytes=said)
        answer = model.answer(ask, NOW)
        assert (answer.reply or answer.refusal or answer.input_tokens) is not None
        assert model.last
        if answer.reply:
            assert min(answer.reply.spend.four) >= 0
