"""Finds contradictions in a scenario: numbers out of range, keys that cannot be combined, rules
that never apply. Pure."""

import math
import re
from collections.abc import Iterator

from segue.core.policy import Policy
from segue.core.stops.reasons import StopReason
from segue.drill import casts
from segue.drill.model.ask import Kind
from segue.drill.model.delivery import FRAMING
from segue.drill.scenarios.types import (
    Context,
    Job,
    Scenario,
    ScenarioEvent,
    ScenarioFact,
    ScenarioRule,
)

Found = tuple[tuple[str | int, ...], str]
"""The key, and what is wrong with it."""

MAX_STEPS = 1_000
MAX_BYTES = 1_000_000
MAX_S = 86_400.0
EVENT_S = 0.3  # a step must run at least this long for an event to hit it
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_TEXT = re.compile(r"[\x20-\x7e]*")


def find(scenario: Scenario) -> Iterator[Found]:
    """All contradictions, in the order in which a file is best fixed."""
    if scenario.schema != 1:
        yield ("schema",), f"{scenario.schema} is unknown; this segue reads schema 1"
    if not _NAME.fullmatch(scenario.name):
        yield ("name",), "must be small letters and digits, with hyphens between"
    if not scenario.about.strip() or "\n" in scenario.about.strip():
        yield ("about",), "must be one line"
    yield from _numbers(scenario)
    known = Policy.__struct_fields__
    for name in scenario.policy:
        if name not in known:
            yield ("policy", name), "no such setting; docs/config.md lists them"
    yield from _job(scenario.job)
    if scenario.context is not None:
        yield from _context(scenario.context, scenario)
    for number, rule in enumerate(scenario.rules):
        for key, what in _rule(rule, scenario):
            yield ("rules", number, *key), what
        for before, other in enumerate(scenario.rules[:number]):
            if _hides(other, rule):
                yield (
                    ("rules", number),
                    (f"never matches: rules[{before + 1}] matches everything before it"),
                )
    for number, turn in enumerate(scenario.turns):
        if turn.calls and turn.stop not in (None, "tool"):
            yield ("turns", number, "stop"), "a turn with a command stops for the tool"
        if turn.stop == "tool" and not turn.calls:
            yield ("turns", number, "stop"), '"tool" needs a command'
        if any(part < 0 for part in turn.spend.four):
            yield ("turns", number, "usage"), "must not be negative"
    for number, event in enumerate(scenario.events):
        for key, what in _event(event, scenario):
            yield ("events", number, *key), what
    yield from _ending(scenario)


def _numbers(scenario: Scenario) -> Iterator[Found]:
    if scenario.max_turns is not None and scenario.max_turns < 1:
        yield ("max_turns",), "must be 1 or more"
    for key in ("limit_s", "slow_limit_s"):
        value = getattr(scenario, key)
        if value is not None and not 0 < value <= MAX_S:
            yield (key,), f"must be more than 0 and at most {MAX_S:.0f}"
    if scenario.slow_limit_s is not None and not scenario.slow_for:
        yield ("slow_limit_s",), "needs slow_for"
    for number, agent in enumerate(scenario.slow_for):
        if agent not in casts.NAMES:
            yield ("slow_for", number), f"must be one of {', '.join(casts.NAMES)}"
    for agent in scenario.options:
        if agent not in casts.NAMES:
            yield ("options", agent), f"must be one of {', '.join(casts.NAMES)}"


def _job(job: Job) -> Iterator[Found]:
    if not 1 <= job.steps <= MAX_STEPS:
        yield ("job", "steps"), f"must be between 1 and {MAX_STEPS}"
    for key in ("output_bytes", "spike_bytes"):
        if not 0 <= getattr(job, key) <= MAX_BYTES:
            yield ("job", key), f"must be between 0 and {MAX_BYTES}"
    if not _is_time(job.step_s):
        yield ("job", "step_s"), _TIME
    if job.spike_step is not None and not 1 <= job.spike_step <= job.steps:
        yield ("job", "spike_step"), f"there is no step {job.spike_step}: the last is {job.steps}"
    for number, fact in enumerate(job.facts):
        for name, what in _fact(fact, job):
            yield ("job", "facts", number, name), what


def _fact(fact: ScenarioFact, job: Job) -> Iterator[tuple[str, str]]:
    least = 0 if fact.kind == "forbidden" else 1
    if not least <= fact.told_in <= job.steps:
        yield "told_in", f"there is no step {fact.told_in}: the last is {job.steps}"
    known_in = fact.told_in
    if fact.kind in ("changed", "corrected"):
        times = [fact.told_in, *fact.changes]
        if len(times) == 1 or times != sorted(set(times)):
            yield "changed_in", f"a fact that changes needs a later step than {fact.told_in}"
        if fact.kind == "corrected" and len(fact.changes) > 1:
            yield "changed_in", "the user corrects it once"
        known_in = max(times)
    elif fact.changed_in is not None:
        yield "changed_in", 'is only for the kinds "changed" and "corrected"'
    if fact.wording and (fact.wording.count("{}") != 1 or not fact.wording.isprintable()):
        yield "wording", "must be one line that contains {} once"
    if fact.wording and fact.kind == "forbidden":
        yield "wording", "what is forbidden has its own words"
    if fact.amid and fact.kind not in ("printed", "changed", "corrected"):
        yield "amid", "is only for what a step prints"
    if fact.spoken_in and job.step_s < EVENT_S:
        why = f"job.step_s must be {EVENT_S} or more"
        yield "kind", f"a step ends before the user can speak: {why}"
    if not known_in < fact.needed_from <= job.steps:
        yield "needed_from", f"must be after step {known_in}, and not after {job.steps}"


def _context(context: Context, scenario: Scenario) -> Iterator[Found]:
    fills = context.fills_after_steps
    if context.window_tokens is not None and not 1 <= context.window_tokens <= 10**9:
        yield ("context", "window_tokens"), "must be between 1 and 1000000000"
    if fills is None:
        return
    if not 0 < fills <= MAX_STEPS:
        yield ("context", "fills_after_steps"), f"must be more than 0 and at most {MAX_STEPS}"
    if scenario.turns:
        yield ("context", "fills_after_steps"), "turns take the place of the steps"


def _rule(rule: ScenarioRule, scenario: Scenario) -> Iterator[Found]:
    refuses = [k for k in ("fault", "status", "body") if getattr(rule, k) is not None]
    replies = [k for k in ("text", "command", "stop", "usage") if getattr(rule, k) is not None]
    if refuses and replies:
        yield (), f"{refuses[0]} refuses and {replies[0]} replies: only one can be"
    if refuses and rule.delivery != "whole":
        yield ("delivery",), f"{refuses[0]} comes whole"
    is_silent = not (refuses or replies or rule.headers or rule.delay_s)
    if is_silent and rule.delivery == "whole":
        yield (), "changes nothing: no fault, text, command, delivery …"
    for key in ("message", "retry_after_s", "resets_in_s", "in_stream"):
        if getattr(rule, key) not in (None, False) and not refuses:
            yield (key,), "belongs to a fault"
    if rule.in_stream and rule.status is not None:
        yield ("in_stream",), "a stream that started successfully has no error status"
    if rule.status is not None and not 200 <= rule.status <= 599:
        yield ("status",), "must be between 200 and 599"
    if rule.times is not None and rule.times < 1:
        yield ("times",), 'must be 1 or more, or "for ever"'
    if rule.after_requests < 0:
        yield ("after_requests",), "must be 0 or more"
    for key in ("retry_after_s", "resets_in_s", "delay_s", "chunk_s"):
        value = getattr(rule, key)
        if value is not None and not _is_time(value):
            yield (key,), _TIME
    if rule.command is not None and rule.stop not in (None, "tool"):
        yield ("stop",), "a reply with a command stops for the tool"
    if rule.stop == "tool" and rule.text is not None and rule.command is None:
        yield ("stop",), '"tool" needs a command'
    if rule.usage is not None and any(part < 0 for part in rule.usage.four):
        yield ("usage",), "must not be negative"
    yield from _before(rule, scenario)
    yield from _headers(rule)


def _before(rule: ScenarioRule, scenario: Scenario) -> Iterator[Found]:
    if rule.kind is Kind.COUNT:
        yield ("kind",), "a count is always answered"
    if rule.before_step is None:
        return
    if scenario.turns:
        yield ("before_step",), "turns take the place of the steps"
    if rule.kind not in (Kind.MAIN, Kind.CONTINUATION):
        yield ("before_step",), f"a request of kind {rule.kind.value} does no step"
    if not 1 <= rule.before_step <= scenario.job.steps:
        last = scenario.job.steps
        yield ("before_step",), f"there is no step {rule.before_step}: the last is {last}"


def _headers(rule: ScenarioRule) -> Iterator[Found]:
    for name, value in rule.headers.items():
        if not _HEADER.fullmatch(name) or not _HEADER_TEXT.fullmatch(value):
            yield ("headers", name), "is not a header: use plain ASCII on one line"
        if name.lower() in FRAMING:
            yield ("headers", name), "is the server's own"


def _hides(first: ScenarioRule, second: ScenarioRule) -> bool:
    """Whether the first rule matches everything that the second could."""
    is_same = first.kind is second.kind
    is_wider = first.kind is Kind.MAIN and second.kind is Kind.CONTINUATION
    return (
        first.times is None
        and (is_same or (is_wider and first.after_requests == 0))
        and first.after_requests <= second.after_requests
        and first.before_step in (None, second.before_step)
    )


def _event(event: ScenarioEvent, scenario: Scenario) -> Iterator[Found]:
    if not 1 <= event.in_step <= scenario.job.steps:
        last = scenario.job.steps
        yield ("in_step",), f"there is no step {event.in_step}: the last is {last}"
    if scenario.job.step_s < EVENT_S:
        yield ("in_step",), f"a step ends too soon: job.step_s must be {EVENT_S} or more"
    command = f"job/step {event.in_step}"
    runs = any(call.command.endswith(command) for turn in scenario.turns for call in turn.calls)
    if scenario.turns and not runs:
        yield ("in_step",), f"no turn runs sh {command}"


def _ending(scenario: Scenario) -> Iterator[Found]:
    expects = scenario.expects
    if expects.ends == "done":
        if expects.reason:
            yield ("expects", "reason"), 'belongs to ends = "stopped"'
    elif expects.reason not in list(StopReason):
        known = ", ".join(reason.value for reason in StopReason)
        yield ("expects", "reason"), f"must be one of {known}"


_TIME = f"must be a time between 0 and {MAX_S:.0f} seconds"


def _is_time(value: float) -> bool:
    return math.isfinite(value) and 0 <= value <= MAX_S
