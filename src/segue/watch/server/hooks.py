"""Decides the replies to claude's hooks. Pure: takes an event and what is known about its session,
and returns a reply and facts; the caller acts on the facts and remembers what was already said.

Everything said to the agent is a statement, not an order, except for the one request for a
handoff document, which is sent only if the user has switched handoffs on. No reply ever allows
anything that claude would have asked about, or prevents claude from compacting.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from segue.core.policy import Policy
from segue.core.sessions.forecasts.gate import Gate, Sized, gate, size_of_prompt, size_of_tool
from segue.core.sessions.reading import Reading, Zone

JSON = dict[str, Any]

EVENTS = (
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "Stop",
    "StopFailure",
    "PreCompact",
    "SessionEnd",
    "Notification",
)
"""The events that `setup` registers."""

TELLING = ("SessionStart", "UserPromptSubmit", "PostToolUse")
"""The events with which the agent can be told something without being made to continue."""

MAX_RECALL_CHARS = 7_800
"""The maximum length, without the text around it."""

_MAX_CHARS = 9_000  # claude puts more than 10,000 into a file
_MACHINE = ("system", "loop_wakeup", "schedule_wakeup", "poll_event")


class HookTexts(Protocol):
    """The texts, by the user's templates."""

    def large_task(self, reading: Reading, *, task_tokens: int, max_tokens: int) -> str:
        """The text before a task that is too large."""

    def high_context(self, reading: Reading) -> str:
        """The text that the window is nearly full."""

    def handoff_request(self, *, percent: float, file: str) -> str:
        """The request for the document."""

    def recall(self, known: str) -> str:
        """The text with what the agent's own compaction left out."""


class HookView(Struct, frozen=True, kw_only=True):
    """What is known about the session now."""

    reading: Reading | None = None
    zone: Zone | None = None
    enforced_at_tokens: int | None = None
    costs: Sequence[int] = ()  # of the project's earlier tasks
    file_bytes: int | None = None  # size of the file from `file_named`
    handoff_file: str = ""  # where its document must be written, if it must be asked for now
    forgotten: str = ""  # what its own compaction has just left out
    is_left_alone: bool = False  # a run's, paused, or the daemon's own


class HookMemory(Struct, frozen=True):
    """What the agent was told through hooks so far. A new session was told nothing."""

    zone: Zone | None = None
    file: str = ""  # of the handoff that it was asked for


class SessionStarted(Struct, frozen=True, tag="started"):
    """A session begins or continues: startup, resume, clear, compact, fork."""

    source: str


class Prompted(Struct, frozen=True, tag="prompted"):
    """A prompt for the agent: typed by somebody, or made by the agent itself."""

    text: str
    by_machine: bool


class TurnOver(Struct, frozen=True, tag="turn_over"):
    """The agent is about to wait for its user."""


class TurnFailed(Struct, frozen=True, tag="failed"):
    """The turn ended with an error; `text` is what the user sees."""

    error: str
    text: str


class Compacting(Struct, frozen=True, tag="compacting"):
    """The agent is about to compact. May come several times for one compaction."""


class SessionEnded(Struct, frozen=True, tag="ended"):
    """The session ends: clear, resume, logout, prompt_input_exit (the user's own exit), other."""

    reason: str


class NeedsUser(Struct, frozen=True, tag="needs_user"):
    """The agent shows a notification: permission_prompt, idle_prompt and others."""

    kind: str
    text: str


class ToldZone(Struct, frozen=True, tag="told_zone"):
    """This reply tells the agent which zone it is in."""

    zone: Zone


class HandoffAsked(Struct, frozen=True, tag="asked"):
    """This reply asks the agent for its handoff document."""

    file: str


class CompactionReminded(Struct, frozen=True, tag="recalled"):
    """This reply tells the agent what its own compaction left out."""

    chars: int


class Gated(Struct, frozen=True, tag="gated"):
    """This reply warns about a task, or refuses it."""

    verdict: str
    tokens: int
    limit_tokens: int


Fact = (
    SessionStarted
    | Prompted
    | TurnOver
    | TurnFailed
    | Compacting
    | SessionEnded
    | NeedsUser
    | ToldZone
    | HandoffAsked
    | CompactionReminded
    | Gated
)


class HookReply(Struct, frozen=True, kw_only=True):
    """What the hook prints (None: nothing), its exit code, the facts that follow, and what the
    agent was told so far, including this reply."""

    body: JSON | None = None
    exit_code: int = 0
    facts: tuple[Fact, ...] = ()
    memory: HookMemory = HookMemory()


def answer(
    event: Mapping[str, Any],
    view: HookView | None,
    policy: Policy,
    words: HookTexts,
    memory: HookMemory = HookMemory(),  # noqa: B008 - frozen
) -> HookReply:
    """The reply to a hook; never raises, whatever the event is. An event of a sub-agent does not
    belong to the session and gets nothing. `view` is None if the session is still unknown."""
    name = _text(event, "hook_event_name")
    if event.get("agent_id") is not None:
        return HookReply(memory=memory)
    facts = _facts(name, event)
    known = view or HookView()
    if known.is_left_alone:
        return HookReply(facts=facts, memory=memory)
    made = _Answer(name, event, known, policy, words, memory)
    return made.reply(facts)


def file_named(event: Mapping[str, Any]) -> str:
    """The file that a tool is about to read as a whole, because its size matters; "" if none."""
    given = event.get("tool_input")
    if _text(event, "hook_event_name") != "PreToolUse" or not isinstance(given, Mapping):
        return ""
    if "limit" in given or _text(event, "tool_name") not in ("Read", "NotebookRead"):
        return ""
    return _text(given, "file_path") or _text(given, "notebook_path")


def _facts(name: str, event: Mapping[str, Any]) -> tuple[Fact, ...]:
    match name:
        case "SessionStart":
            return (SessionStarted(_text(event, "source")),)
        case "UserPromptSubmit":
            by_machine = _text(event, "source") in _MACHINE
            return (Prompted(_text(event, "prompt"), by_machine),)
        case "Stop":
            return (TurnOver(),)
        case "StopFailure":
            return (TurnFailed(_text(event, "error"), _text(event, "last_assistant_message")),)
        case "PreCompact":
            return (Compacting(),)
        case "SessionEnd":
            return (SessionEnded(_text(event, "reason")),)
        case "Notification":
            return (NeedsUser(_text(event, "notification_type"), _text(event, "message")),)
    return ()


class _Answer:
    """A reply in the making."""

    def __init__(
        self,
        name: str,
        event: Mapping[str, Any],
        view: HookView,
        policy: Policy,
        words: HookTexts,
        memory: HookMemory,
    ) -> None:
        self.name, self.event, self.view = name, event, view
        self.policy, self.words, self.memory = policy, words, memory
        self.facts: list[Fact] = []

    def reply(self, facts: tuple[Fact, ...]) -> HookReply:
        is_known = self.view.reading is not None or self.view.forgotten
        body = self._body() if is_known else None
        return HookReply(body=body, facts=(*facts, *self.facts), memory=self.memory)

    def _body(self) -> JSON | None:
        match self.name:
            case "UserPromptSubmit":
                gated = self._gate_prompt()
                if gated.verdict == "block":
                    return {"decision": "block", "reason": self._gate_message(gated)}
                return self._context(self._gate_message(gated), self._crossing())
            case "PreToolUse":
                gated = self._gate_tool()
                if gated.verdict == "block":
                    return self._specific(
                        permissionDecision="deny",
                        permissionDecisionReason=self._gate_message(gated),
                    )
                return self._context(self._gate_message(gated))
            case "PostToolUse":
                return self._context(self._request() or self._crossing())
            case "SessionStart":
                return self._context(self._recalled(), self._crossing())
        return None

    def _gate_prompt(self) -> Gate:
        text = _text(self.event, "prompt")
        is_own = bool(self.view.handoff_file) and self.view.handoff_file in text
        # Neither a command, nor what the agent says to itself, nor segue's own words.
        if is_own or text.startswith("/") or _text(self.event, "source") in _MACHINE:
            return Gate("allow")
        return self._gate(size_of_prompt(len(text), self.view.costs))

    def _gate_tool(self) -> Gate:
        given = self.event.get("tool_input")
        if self.view.handoff_file and self.view.handoff_file in str(given):
            return Gate("allow")
        if self.view.file_bytes is None:
            return Gate("allow")  # nothing is said about the unknown
        size = len(str(given)) if given else 0
        name = _text(self.event, "tool_name")
        return self._gate(size_of_tool(name, size, self.view.file_bytes))

    def _gate(self, sized: Sized) -> Gate:
        view = self.view
        if view.reading is None or view.zone is None:
            return Gate("allow")
        found = gate(
            sized,
            view.reading,
            view.zone,
            self.policy,
            enforced_at_tokens=view.enforced_at_tokens,
        )
        if found.verdict != "allow":
            self.facts.append(Gated(found.verdict, found.tokens, found.limit_tokens))
        return found

    def _gate_message(self, found: Gate) -> str:
        if found.verdict == "allow" or self.view.reading is None:
            return ""
        if not found.limit_tokens:
            return found.text
        return self.words.large_task(
            self.view.reading, task_tokens=found.tokens, max_tokens=found.limit_tokens + 1
        )

    def _crossing(self) -> str:
        """The text about a zone that was entered since; nothing about one that was left."""
        zone, reading, before = self.view.zone, self.view.reading, self.memory.zone
        if zone is None or reading is None or zone is before:
            return ""
        self.memory = HookMemory(zone, self.memory.file)
        order = list(Zone)
        if order.index(zone) <= order.index(before or Zone.NORMAL):
            return ""
        self.facts.append(ToldZone(zone))
        return said_of(zone, reading, self.policy, self.words)

    def _recalled(self) -> str:
        known = self.view.forgotten
        if not known or not self.policy.recall_after_compaction:
            return ""
        self.facts.append(CompactionReminded(len(known)))
        return self.words.recall(known)

    def _request(self) -> str:
        """The request for a handoff document, once for each."""
        file, reading = self.view.handoff_file, self.view.reading
        if not file or file == self.memory.file or reading is None or not self.policy.auto_handoff:
            return ""
        self.memory = HookMemory(self.view.zone, file)
        self.facts.append(HandoffAsked(file))
        return self.words.handoff_request(percent=reading.percent, file=file)

    def _context(self, *texts: str) -> JSON | None:
        context = "\n\n".join(text.strip() for text in texts if text)
        return self._specific(additionalContext=context) if context else None

    def _specific(self, **values: str) -> JSON:
        cut = {key: value[:_MAX_CHARS] for key, value in values.items()}
        return {"hookSpecificOutput": {"hookEventName": self.name, **cut}}


def said_of(zone: Zone, reading: Reading, policy: Policy, words: HookTexts) -> str:
    """What an agent is told on entering a zone: how full its window is, and what that means."""
    if zone in (Zone.CRITICAL, Zone.HANDOFF):
        return words.high_context(reading)
    message = (
        f"Context at {reading.percent:.0f}%: {reading.used_tokens:,} of the window's"
        f" {reading.window_tokens:,} tokens are used ({zone.value} zone)."
        " This message is automatic."
    )
    if zone is Zone.WARNING:
        most = policy.warning_task_tokens
        message += f" From here on tasks of less than {most:,} tokens fit best in this session."
    return message


def _text(fields: Mapping[str, Any], key: str) -> str:
    found = fields.get(key)
    return found if isinstance(found, str) else ""
