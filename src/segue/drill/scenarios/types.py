"""A scenario: what the scripted model does, and what happens to the agent. Types only; see
`load`."""

from typing import Literal

from msgspec import Struct, field

from segue.core.sessions.spend import Spend
from segue.drill.model.answer import Delivery, Fault, ModelReply, Stop
from segue.drill.model.ask import Kind

Act = Literal["kill", "interrupt", "terminate", "hang_up"]
Ends = Literal["done", "stopped"]


class ScenarioFact(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A fact that only the conversation contains, and that later steps need.

    printed: a step prints it, once. decided: the model chooses it, and says so before a step.
    changed: a step prints it, and a later one another value, which counts from then on.
    told: the user says it. corrected: a step prints it, and later the user says another value.
    forbidden: the user says that a file must not be touched, in the task (`told_in` 0) or later;
    a model that does not know it overwrites the file. The user speaks while a step runs:
    they interrupt the agent and resume it with their words."""

    kind: Literal["printed", "decided", "changed", "told", "corrected", "forbidden"]
    told_in: int  # the step
    needed_from: int  # the first step that needs it; all later ones need it too
    changed_in: int | list[int] | None = None  # the step, or several
    wording: str = ""
    """The words in which it is told, with {} for the value. "": "fact 1 is {}"."""
    value: Literal["word", "number", "letters"] = "word"
    amid: bool = False  # in the middle of what the step prints

    @property
    def changes(self) -> list[int]:
        """The steps in which it gets another value."""
        if self.changed_in is None:
            return []
        return self.changed_in if isinstance(self.changed_in, list) else [self.changed_in]

    @property
    def spoken_in(self) -> int | None:
        """The step in which the user says it; None if they do not, or in the task."""
        if self.kind == "corrected":
            return next(iter(self.changes), None)
        return self.told_in or None if self.kind in ("told", "forbidden") else None


class Job(Struct, frozen=True, forbid_unknown_fields=True):
    """The numbered steps."""

    steps: int = 8
    output_bytes: int = 2_000  # bytes that each step prints
    prints: Literal["words", "log", "tests", "data"] = "words"  # the form of that output
    step_s: float = 0.0  # how long each step takes
    spike_step: int | None = None  # this step prints more than the others
    spike_bytes: int = 20_000  # this many bytes; agents truncate much longer output
    facts: list[ScenarioFact] = []


class Context(Struct, frozen=True, forbid_unknown_fields=True):
    """Counts the tokens that are really sent, and refuses what is too long."""

    window_tokens: int | None = None  # None: the window that the agent assumes
    fills_after_steps: float | None = None
    """The conversation is counted larger than it is, so that the window is full after so many
    steps. None: it is counted in its real size."""
    refuses: bool = True  # answers "too long" beyond the window


class ScenarioRule(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which requests get an answer other than the model's own. The first match counts. `fault` or
    `status`/`body` refuse; `text`, `command`, `stop`, `usage` reply; `delivery` alone sends the
    model's own reply in that way."""

    kind: Kind = Kind.MAIN
    before_step: int | None = None  # when the model would do this step
    after_requests: int = 0  # after this many requests of this kind
    times: int | None = 1  # None: forever
    fault: Fault | None = None
    status: int | None = None
    body: str | None = None
    message: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    retry_after_s: float | None = None
    resets_in_s: float | None = None
    in_stream: bool = False
    text: str | None = None
    command: str | None = None
    stop: Stop | None = None
    usage: Spend | None = None
    delivery: Delivery = "whole"
    delay_s: float = 0.0
    chunk_s: float = 0.05


class ScenarioEvent(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What happens to the agent from outside."""

    act: Act
    in_step: int  # while this step's command runs


class Expectation(Struct, frozen=True, forbid_unknown_fields=True):
    """What a correct ending is."""

    ends: Ends = "done"
    """"stopped": the job cannot be finished (no key, no money, the user's own will). Then the
    ending is correct if nothing is lost or repeated, and the reason is reported."""
    reason: str = ""  # the stop reason, if it ends "stopped"


class Scenario(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One rehearsal."""

    schema: int = 1
    name: str = ""  # the file's name, if it states none
    about: str
    job: Job = Job()
    context: Context | None = None
    summary: Literal["faithful", "lazy", "forgets"] = "faithful"
    """What compactions and checkpoints keep. lazy: the steps that are done, and no facts."""
    rules: list[ScenarioRule] = field(default_factory=list)
    turns: list[ModelReply] = field(default_factory=list)  # for main requests, instead of the job
    events: list[ScenarioEvent] = field(default_factory=list)
    expects: Expectation = Expectation()
    max_turns: int | None = None  # passed to the agent, if it accepts one
    options: dict[str, dict[str, str]] = field(default_factory=dict)
    """Options of each agent's cast for this scenario, such as {"claude": {"plan": "1"}} for a
    plan's login instead of a key."""
    limit_s: float = 60.0  # then the drill ends the agent
    slow_for: list[str] = field(default_factory=list)
    """Agents that take minutes here, by their own fixed waits: only in the full matrix."""
    slow_limit_s: float | None = None  # the limit for the agents in `slow_for`; None: limit_s

    stall_s: float = 45.0
    """With segue: how long the agent may be silent before segue ends it. Agents wait 10 s and more
    before they try again, and take as long to start on a busy machine."""
    policy: dict[str, bool | int | float] = field(default_factory=dict)
    """With segue: settings of its `[policy]`, such as {"soft_mark": 2.0, "hard_mark": 2.0} for a
    segue that leaves a full window to the agent."""

    def limit_for(self, agent: str) -> float:
        """After how many seconds the drill ends this agent."""
        if agent in self.slow_for and self.slow_limit_s is not None:
            return self.slow_limit_s
        return self.limit_s
