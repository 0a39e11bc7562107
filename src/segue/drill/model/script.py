"""The scripted model. It is honest: it knows only what it receives. Pure: the clock is an argument,
and the same requests get the same answers."""

import math
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from segue.drill.model import speech
from segue.drill.model.answer import Delivery, ModelAnswer, ModelReply, Refusal
from segue.drill.model.ask import Ask, Call, Kind, shell_call
from segue.drill.model.context import Meter, WindowGauge
from segue.drill.model.memory import ModelMemory, recall
from segue.drill.model.relay import Relay, read_command, relay, write_command
from segue.drill.plays import facts
from segue.drill.scenarios.types import Scenario, ScenarioRule

_EARLY_S = 0.1  # a wait that is shorter by this much still counts: timers round
_LOST: tuple[Delivery, ...] = (
    "drop",
    "drop_midway",
    "hang",
    "hang_midway",
    "unfinished",
    "garbage",
)


class _Hold(Struct):
    """A limit that applies now: every request before its end is refused."""

    rule: ScenarioRule
    until: float


class Script:
    """Answers requests by a scenario. Not thread-safe. `window_tokens` is the window that the agent
    assumes; a scenario's own takes precedence. Ids of calls contain `seed`, and never repeat one of
    the conversation."""

    def __init__(self, scenario: Scenario, *, window_tokens: int, seed: int = 0) -> None:
        self.scenario = scenario
        self.meter = Meter(scenario.context, scenario.job, window_tokens)
        self.gauge = WindowGauge(0, self.meter.window_tokens)
        """The size of the last request of the work."""
        self.last = ""
        """The last decision: "step 3", "look", "too_long", "summary", …"""
        self._seed = seed
        self._calls = 0
        self._turn = 0
        self._fired = [0] * len(scenario.rules)
        self._asked = dict.fromkeys(Kind, 0)
        self._hold: _Hold | None = None

    def answer(self, ask: Ask, now: float) -> ModelAnswer:
        """The answer to a request that arrived at `now`, unix time."""
        memory = recall(ask.parts, self.scenario.job.steps)
        gauge = self.meter.read(ask, len(memory.known))
        answer = self._answer(ask, memory, gauge, now)
        return replace(answer, decision=self.last, counted_tokens=gauge.used_tokens)

    @property
    def unfired(self) -> list[int]:
        """The rules that no request has matched yet, counted from 1."""
        return [place for place, times in enumerate(self._fired, 1) if not times]

    def _answer(self, ask: Ask, memory: ModelMemory, gauge: WindowGauge, now: float) -> ModelAnswer:
        if ask.kind is Kind.COUNT:
            self.last = "count"
            return ModelAnswer(input_tokens=gauge.used_tokens)
        if _is_work(ask.kind):
            self.gauge = gauge
        rule = self._rule(ask, memory, now)
        for kind in Kind:
            self._asked[kind] += _covers(kind, ask.kind)
        if rule is None:
            if self.meter.refuses and gauge.is_over:
                self.last = "too_long"
                return ModelAnswer(refusal=self.meter.refusal(gauge))
            return ModelAnswer(reply=self._reply(ask, memory, gauge))
        if refusal := self._refusal(rule, gauge, now):
            self.last = rule.fault or f"status {refusal.status or 400}"
            return ModelAnswer(refusal=refusal, delay_s=rule.delay_s)
        return ModelAnswer(
            reply=self._reply(ask, memory, gauge, rule),
            delivery=rule.delivery,
            delay_s=rule.delay_s,
            chunk_s=rule.chunk_s,
            headers=rule.headers,
        )

    # Rules

    def _rule(self, ask: Ask, memory: ModelMemory, now: float) -> ScenarioRule | None:
        """The rule that applies to this request, if any; it then counts as used."""
        if self._hold and now < self._hold.until:
            return self._hold.rule
        self._hold = None
        for place, rule in enumerate(self.scenario.rules):
            if rule.times is not None and self._fired[place] >= rule.times:
                continue
            if self._fits(rule, ask, memory):
                self._fired[place] += 1
                if (wait := _holds_for(rule, now)) is not None:
                    self._hold = _Hold(rule, wait)
                return rule
        return None

    def _fits(self, rule: ScenarioRule, ask: Ask, memory: ModelMemory) -> bool:
        if not _covers(rule.kind, ask.kind) or self._asked[rule.kind] < rule.after_requests:
            return False
        return rule.before_step is None or rule.before_step == self._step(ask, memory)

    def _refusal(self, rule: ScenarioRule, gauge: WindowGauge, now: float) -> Refusal | None:
        if rule.fault is None and rule.status is None and rule.body is None:
            return None
        base = self.meter.refusal(gauge) if rule.fault == "too_long" else Refusal(fault=rule.fault)
        until = self._hold.until if self._hold else now
        retry_after_s = None
        if rule.retry_after_s is not None:
            rest = max(0, math.ceil(until + _EARLY_S - now))
            retry_after_s = min(rule.retry_after_s, float(rest))
        return replace(
            base,
            status=rule.status,
            body=rule.body,
            headers=rule.headers,
            message=rule.message,
            retry_after_s=retry_after_s,
            resets_at=None if rule.resets_in_s is None else until,
            in_stream=rule.in_stream,
        )

    # Replies

    def _reply(
        self, ask: Ask, memory: ModelMemory, gauge: WindowGauge, rule: ScenarioRule | None = None
    ) -> ModelReply:
        """The model's own reply, changed as a rule demands."""
        if rule and (rule.text is not None or rule.command is not None):
            commands = [] if rule.command is None else [rule.command]
            self.last = "command" if commands else "text"
            reply = self._reply_with_calls(ask, rule.text or "", commands)
        elif _is_work(ask.kind) and self.scenario.turns:
            reply = self._next_turn(ask, is_lost=rule is not None and rule.delivery in _LOST)
        elif _is_work(ask.kind):
            reply = self._work(ask, memory)
        else:
            reply = self._side_reply(ask, memory)
        if rule and rule.stop is not None:
            # A reply that stops for another reason does not reach the call.
            calls = reply.calls if rule.stop == "tool" else ()
            reply = replace(reply, stop=rule.stop, calls=calls)
            self.last += f", stop {rule.stop}"
        size = len(reply.text) + sum(len(call.command) for call in reply.calls)
        counted = self.meter.spend(ask, gauge, size)
        if rule and rule.usage is not None:
            return replace(reply, spend=rule.usage)
        return reply if any(reply.spend.four) else replace(reply, spend=counted)

    def _step(self, ask: Ask, memory: ModelMemory) -> int | None:
        """The step that the model would do next on its own."""
        missing = set(range(1, self.scenario.job.steps + 1)) - memory.known
        if self.scenario.turns or memory.should_look or not missing:
            return None
        step = min(missing)
        return None if memory.is_stuck_with(self._command(ask, step)) else step

    def _command(self, ask: Ask, step: int) -> str:
        """The command for a step, with the facts that the conversation states."""
        job, words = self.scenario.job, facts.stated(ask.parts, self.scenario.job)
        given = facts.arguments(job, step, words)
        return f"{facts.meddled(job, step, words)}sh job/step {step}{given}"

    def _work(self, ask: Ask, memory: ModelMemory) -> ModelReply:
        steps = self.scenario.job.steps
        handed = relay(ask.parts)
        if handed.act != "work":
            return self._relay(ask, memory, handed)
        step = self._step(ask, memory)
        if step is not None:
            self.last = f"step {step}"
            text = f"Step {step}. {facts.said_before(self.scenario.job, step)}".strip()
            return self._reply_with_calls(ask, text, [self._command(ask, step)])
        if memory.should_look:
            self.last = "look"
            return self._reply_with_calls(ask, "What is there already?", ["sh job/show"])
        if len(memory.known) == steps:
            self.last = "end"
            return ModelReply(text=f"All {steps} steps are done.")
        self.last = "gives up"
        return ModelReply(text="The next step fails again and again; I stop here.")

    def _relay(self, ask: Ask, memory: ModelMemory, handed: Relay) -> ModelReply:
        """What an obedient session does when it is asked to write or read a handoff document."""
        self.last = f"handoff: {handed.act}"
        match handed.act:
            case "write":
                text = speech.document(*self._summary_content(ask, memory))
                return self._reply_with_calls(
                    ask, "The document.", [write_command(handed.file, text)]
                )
            case "read":
                return self._reply_with_calls(ask, "I read it.", [read_command(handed.file)])
            case "look":
                return self._reply_with_calls(ask, "What is there already?", ["sh job/show"])
        return ModelReply(text="The handoff document is written.")

    def _side_reply(self, ask: Ask, memory: ModelMemory) -> ModelReply:
        self.last, say = _ASIDES.get(ask.kind, ("other", speech.other))
        return ModelReply(text=say(ask, *self._summary_content(ask, memory)))

    def _summary_content(
        self, ask: Ask, memory: ModelMemory
    ) -> tuple[frozenset[int], int, list[str]]:
        """What the model puts into a summary: the steps done, the number of steps, and facts."""
        summary, job = self.scenario.summary, self.scenario.job
        steps = job.steps
        if summary == "forgets":
            return frozenset(), steps, []
        known = facts.stated(ask.parts, job) if summary == "faithful" else {}
        fact_lines = facts.lines(known, job)
        return memory.known, steps, fact_lines

    def _next_turn(self, ask: Ask, *, is_lost: bool) -> ModelReply:
        turns = self.scenario.turns
        if self._turn >= len(turns):
            self.last = "end"
            return ModelReply(text="Done.")
        turn = turns[self._turn]
        self.last = f"turn {self._turn + 1}"
        if not is_lost:  # otherwise the agent asks for it again
            self._turn += 1
        answer = self._reply_with_calls(ask, turn.text, [call.command for call in turn.calls])
        return replace(answer, stop=turn.stop, spend=turn.spend)

    def _reply_with_calls(self, ask: Ask, text: str, commands: list[str]) -> ModelReply:
        taken = {call.id for part in ask.parts for call in part.calls}
        calls: list[Call] = []
        for command in commands:
            self._calls += 1
            while (number := f"call_{self._seed}_{self._calls:04}") in taken:
                self._calls += 1
            calls.append(shell_call(ask, number, command))
        return ModelReply(text=text, calls=tuple(calls))


_ASIDES: dict[Kind, tuple[str, Callable[[Ask, frozenset[int], int, list[str]], str]]] = {
    Kind.TITLE: ("title", speech.title),
    Kind.COMPACTION: ("summary", speech.summary),
    Kind.CHECKPOINT: ("checkpoint", speech.checkpoint),
}


def _is_work(kind: Kind) -> bool:
    return _covers(Kind.MAIN, kind)


def _covers(kind: Kind, asked: Kind) -> bool:
    """A continuation and a handoff are work too: the same rules apply to them."""
    return kind is asked or (kind is Kind.MAIN and asked in (Kind.CONTINUATION, Kind.HANDOFF))


def _holds_for(rule: ScenarioRule, now: float) -> float | None:
    """When a limit ends, or None if the answer is not a limit."""
    if rule.resets_in_s is not None:
        return float(math.ceil(now + rule.resets_in_s))  # APIs state it in whole seconds
    if rule.retry_after_s is not None:
        return now + rule.retry_after_s - _EARLY_S
    return None
