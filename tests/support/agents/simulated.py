"""An agent and a supervisor, simulated without a process: for tests of the scripted model.

The agent obeys: it runs what the model calls, and sends the whole conversation again. The
supervisor is ideal: it waits when it must, asks for a checkpoint before a new session, and knows
when there is nothing to be done."""

import re
from collections.abc import Callable

from segue.drill.model.answer import ModelAnswer, ModelReply
from segue.drill.model.ask import Ask, Call, Kind, Part
from segue.drill.model.script import Script
from segue.drill.plays.job import Continuity, judge, prompt
from segue.drill.scenarios.types import Scenario

BASE_BYTES = 40_000
_STEP = re.compile(r"(?:echo tidied >keep/\d+; )*sh job/step (\d+)")


class World:
    """The repository: what was done, in order."""

    def __init__(self, scenario: Scenario) -> None:
        self.job = scenario.job
        self.done: list[int] = []

    def run(self, command: str) -> str:
        steps = self.job.steps
        if found := _STEP.fullmatch(command):
            step = int(found[1])
            self.done.append(step)
            size = self.job.output_bytes
            if step == self.job.spike_step:
                size = self.job.spike_bytes
            return "x" * size + f"\nstep {step} of {steps} done\n"
        if command == "sh job/show":
            return "".join(f"step {n} of {steps} done\n" for n in self.done) or "no step yet"
        return "?"

    def check(self, *, finished: bool) -> Continuity:
        return judge(self.done, self.job, finished)


def request(parts: list[Part], kind: Kind = Kind.MAIN, around: int = 0) -> Ask:
    """As an agent would send it, with so many bytes around each part."""
    said = sum(
        len(part.text) + sum(len(call.command) for call in part.calls) + around for part in parts
    )
    return Ask(
        wire="anthropic",
        model="m",
        parts=tuple(parts),
        kind=kind,
        tools=("Bash",),
        base_bytes=BASE_BYTES,
        said_bytes=said,
    )


def result(call: Call, text: str, *, is_error: bool = False) -> Part:
    return Part("tool", text, answers=call.id, is_error=is_error)


class Agent:
    """One conversation at a time."""

    def __init__(self, scenario: Scenario, window_tokens: int = 200_000, around: int = 60) -> None:
        self.scenario = scenario
        self.script = Script(scenario, window_tokens=window_tokens)
        self.world = World(scenario)
        self.around = around
        self.now = 1_800_000_000.25
        self.parts = [Part("user", prompt(scenario.job))]
        self.exhaustions = 0
        self.requests = 0
        self.peak_tokens = 0
        self.on_call: Callable[[Call], Part | None] = lambda call: None
        """Something that happens instead of a call."""

    def ask(self, kind: Kind = Kind.MAIN, *more: Part) -> ModelAnswer:
        self.requests += 1
        assert self.requests < 2_000, "it goes round in circles"
        self.now += 0.01
        answer = self.script.answer(request([*self.parts, *more], kind, self.around), self.now)
        if answer.reply and kind is Kind.MAIN:
            spend = answer.reply.spend
            self.peak_tokens = max(self.peak_tokens, spend.total_tokens - spend.output_tokens)
        return answer

    def take(self, reply: ModelReply) -> bool:
        """Runs the calls; whether there were any."""
        self.parts.append(Part("assistant", reply.text, reply.calls))
        for call in reply.calls:
            self.parts.append(self.on_call(call) or result(call, self.world.run(call.command)))
        return bool(reply.calls)

    def start_again(self, text: str) -> None:
        """A new session."""
        self.parts = [Part("user", prompt(self.scenario.job)), Part("user", text)]


def supervise(agent: Agent, *, forgets: bool = False) -> str:
    """Plays it to its end: "done", or the fault for which there is no help."""
    while True:
        answer = agent.ask()
        if answer.delivery not in ("whole", "trickle"):
            continue  # nothing came, or half of it: asked again
        if answer.reply:
            if not agent.take(answer.reply):
                return "done"
            continue
        assert answer.refusal is not None
        fault = answer.refusal.fault
        if fault in ("auth", "billing"):
            return fault
        if fault == "too_long":
            agent.exhaustions += 1
            agent.start_again("" if forgets else _checkpoint(agent))
        elif answer.refusal.resets_at is not None:
            agent.now = max(agent.now, answer.refusal.resets_at)
        else:
            agent.now += answer.refusal.retry_after_s or 1.0


def _checkpoint(agent: Agent) -> str:
    """From a conversation that fits: its newest part goes until it does."""
    kept = agent.parts
    while True:
        agent.parts = kept
        answer = agent.ask(Kind.CHECKPOINT)
        if answer.reply:
            told = agent.world.run("sh job/show")  # what the tree says, whatever was cut
            return f"{answer.reply.text}\n{told}"
        if len(kept) < 3:
            return agent.world.run("sh job/show")
        kept = kept[:-2]
