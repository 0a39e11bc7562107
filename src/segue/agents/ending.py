"""From an agent's output to a verdict: text in, no files, no clock.

This is where the parsers, the text and the exit code come together. `judge` does all of `segue
classify` except for reading files.
"""

import re
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from segue import agents
from segue.agents.contracts.profile import Profile
from segue.agents.markdown import session as markdown
from segue.agents.shared import records, unowned
from segue.agents.shared.lines import decode
from segue.core.policy import Policy
from segue.core.stops import classify as core
from segue.core.stops.claims.tempering import temper
from segue.core.stops.composition import is_family
from segue.core.stops.events import Ended, Event, Failure
from segue.core.stops.exits import NO_FLAGS, ExitFlags
from segue.core.stops.fold import Turn, fold
from segue.core.stops.plain.dialogs import dialog_sign
from segue.core.stops.plain.text import units
from segue.core.stops.plain.unwrap import is_answer_page, unwrap
from segue.core.stops.plain.voice import Voice, is_faulty, is_string
from segue.core.stops.reasons import StopReason
from segue.core.stops.text.reader import MessageReader, quote_of
from segue.core.stops.text.readout import text_reading
from segue.core.stops.text.text_verdict import TextVerdict, last_message
from segue.core.stops.types import EndedBy, Evidence, Rank, Sign, Strength, Tokens

Channel = Literal[
    "stdout", "stderr", "tui", "transcript-record", "stream-json", "http-body", "log", "transcript"
]
CHANNELS: tuple[Channel, ...] = get_args(Channel)

_LONGEST_WORD = 40
# In these, text that is not a record is what somebody said or what a tool printed.
_CONVERSATION = ("transcript-record", "transcript")
_STREAMS = ("stdout", "stderr", "log")
_RECORDED = ("stream-json", "stdout", "log", "transcript-record")
_WHOLE_FAILED = re.compile(r"(?:session|turn|run|agent|task)[./_](?:error|failed)$")
"""In a session's records, only an event that names the whole turn, run or task counts as its
failure, because other records may contain what a tool printed."""
_SCREENS = ("tui", "stdout")
# Nobody types here, so a mark before every line means that the whole text is quoted.
_PROMPTLESS = ("http-body", "log", "stderr")
# What a server answers if nothing failed.
_ANSWERED = re.compile(
    r"\s*(?:HTTP/[\d.]+ 2\d\d\b"
    r"|\{(?!.{0,400}\"error\")[^\n]{0,200}\"choices\"\s*:\s*\[(?!.{0,4000}content_filter))"
)
_FAILED = re.compile(
    r"(?i)\"(?:\w*err(?:or)?s?\w*|message|msg|details?|code|status\w*|fault|type|reason|exception|text"
    r"|content|cause|description)\"\s*:"
    r"|\"(?:finish|block|stop)_?reason\"\s*:\s*\"(?:safety|prohibited_content|recitation|blocklist|spii"
    r"|content_filter|refusal)\""
)
_REFUSED = re.compile(r"\"choices\"[^\n]{0,400}\"refusal\"\s*:\s*\"[^\"]{1,200}")
"""A model's answer that is nothing but a refusal."""
_QUOTED = re.compile(r"\s{0,3}> ?|\s*$")


def channel_of(name: str) -> Channel:
    """What a file is, by its name: a session file, a log, or otherwise the content of a screen."""
    if name.endswith((".jsonl", ".md")):
        return "transcript"
    return "log" if name.endswith(".log") else "tui"


_LEAVING = re.compile(r"(?i)[>❯›$\s]*(/?(?:exit|quit|bye|q|done|goodbye)|:q!?|/logout)\s*")


class Source(Struct, frozen=True, kw_only=True):
    """One stream or file of an ending; `name` is what evidence calls it."""

    text: str
    channel: Channel = "stdout"
    name: str = "stdout"
    first_line: int = 1
    turn: Turn | None = None
    """The source's last turn, if it contains only records of the named agent and all of them were
    already read. `text` is ignored then."""


class Ending(Struct, frozen=True, kw_only=True):
    """Everything known about how a leg ended, before anything is interpreted."""

    sources: tuple[Source, ...] = ()
    agent: str | None = None
    exit_code: int | None = None
    ended_by: EndedBy = "unknown"
    exit_tells: bool = False
    """For a user's own program: only its exit code says whether it is done, not its output."""


class _ReadSource(Struct, frozen=True):
    """One source, read."""

    source: Source
    profile: Profile | None
    turn: Turn | None
    verdict: TextVerdict
    speaks: bool  # plain text that somebody wrote
    tokens: Tokens | None
    notes: tuple[str, ...] = ()


def judge(ending: Ending, reader: MessageReader, policy: Policy) -> core.Judgement:
    """The verdict on an ending, with all signs."""
    if ending.agent:
        reader = replace(reader, agent=agents.canonical(ending.agent))
    read = [_read(source, ending.agent, reader, policy) for source in ending.sources]
    profile = next((r.profile for r in read if r.profile is not None), None)
    if profile is None and ending.agent:
        profile = agents.find(ending.agent)
    if profile is not None and reader.agent is None:
        reader = replace(reader, agent=profile.name)
    streams = [r for r in read if r.turn is not None and r.source.channel != "transcript"]
    sessions = [r for r in read if r.turn is not None and r.source.channel == "transcript"]
    stream = next((r.turn for r in streams), None)
    witness = core.Witness(
        stream=stream,
        session=next((r.turn for r in sessions), None),
        verdicts=tuple(r.verdict for r in read),
        exit_code=ending.exit_code,
        ended_by=ending.ended_by,
        exit_flags=_flags(profile),
        printed_answer=stream is None
        and any(r.speaks and r.source.channel in ("stdout", "tui") for r in read),
        silent=bool(ending.sources) and not any(s.turn or s.text.strip() for s in ending.sources),
        zero_means_done=profile is not None and profile.zero_means_done,
        exit_tells=ending.exit_tells,
        tokens=next((r.tokens for r in read if r.tokens is not None), None),
        typed_exit=_typed_exit(ending),
        notes=tuple(note for r in read for note in r.notes),
    )
    return core.classify(witness, reader, policy)


def _typed_exit(ending: Ending) -> str:
    """The word with which the user left (`/exit`, `quit`), if all output consists of it; otherwise
    ""."""
    spoken = [source.text for source in ending.sources if source.text.strip()]
    if any(source.turn is not None for source in ending.sources):
        return ""
    if ending.exit_code != 0 or len(spoken) != 1 or len(spoken[0]) > _LONGEST_WORD:
        return ""
    found = _LEAVING.fullmatch(spoken[0])
    return found[1] if found else ""


def judge_turn(
    profile: Profile, turn: Turn, reader: MessageReader, policy: Policy
) -> core.Judgement:
    """The verdict on the last turn of a session file, when nothing else is known."""
    return core.classify(
        core.Witness(session=turn, exit_flags=_flags(profile)),
        replace(reader, agent=profile.name),
        policy,
    )


def needs_wordings(turn: Turn) -> bool:
    """Whether the verdict on this turn depends on its messages: if not, no wordings need to be
    compiled."""
    failed = turn.failure or turn.limit or turn.compaction or turn.waiting
    return bool(failed or (turn.ended is not None and not turn.ended.ok))


def _flags(profile: Profile | None) -> ExitFlags:
    if profile is None:
        return NO_FLAGS
    return ExitFlags(
        reasons=profile.exit_reasons,
        cut_reasons=profile.cut_exit_reasons,
        silent_reasons=profile.silent_exit_reasons,
        is_http_status=profile.exit_is_http_status,
    )


def _read(source: Source, agent: str | None, reader: MessageReader, policy: Policy) -> _ReadSource:
    if source.turn is not None and agent is not None:
        return _ReadSource(source, agents.find(agent), source.turn, TextVerdict(), False, None)
    text = source.text
    flow = markdown.workflow(text) if text[:4].lstrip("\ufeff").startswith("---") else None
    # A status alone makes any document "done", but a session file is known to be one.
    if flow is not None and (flow.has_steps or source.channel == "transcript"):
        # The body is a document; only what the agent says at its end counts.
        body = markdown.body(text)
        above = text.count("\n") - body.count("\n")
        spoken = replace(source, channel="tui")  # what the agent showed, written down
        verdict = _read_text(body.split("\n"), spoken, reader, policy, source.first_line + above)
        progress = fold(_workflow_events(flow, source.name))
        due = (f"the next step is {flow.next_step}",) if flow.next_step else ()
        return _ReadSource(source, None, progress, verdict, False, None, due)
    cut = records.split(text, source.name, source.first_line)
    found, rest = cut.records, cut.rest
    stream = cut.is_stream or source.channel == "transcript"
    profile = records.owner(found, agent) if found and stream else None
    is_kept = False
    if profile is None and (errors := records.listed_errors(text)):
        lines, first, source = errors, source.first_line, replace(source, channel="http-body")
        is_kept = True
    elif profile is None:
        lines = records.spoken(found, text)
        first = source.first_line
    else:
        lines = [line for _, line in rest]
        first = rest[0][0] if rest else source.first_line
    turn: Turn | None = fold(profile.parse(found)) if profile is not None else None
    if turn is not None and turn.seen == 0 and turn.unread == 0:
        turn = None
    if profile is None and cut.is_stream and source.channel in _RECORDED:
        events = unowned.events(found)
        if source.channel == "log":  # there, some task or other is always done or has failed
            events = [
                t for t in events if isinstance(t, Ended) and t.reason is StopReason.MAX_BUDGET
            ]
        if source.channel == "transcript-record":
            events = [
                t for t in events if isinstance(t, Failure) and _WHOLE_FAILED.match(t.code or "")
            ]
        turn = fold(events) if events else None
    verdict = TextVerdict()
    if profile is None and source.channel == "transcript" and markdown.is_session(text):
        # Its front matter cannot be read, so its text counts.
        source = replace(source, channel="tui")
    # Text next to records in a session file is damage, not speech.
    if not (profile is not None and source.channel == "transcript"):
        alone = profile is None and source.channel != "transcript"
        verdict = _read_text(lines, source, reader, policy, first, is_kept=is_kept, alone=alone)
    speaks = profile is None and verdict.answered
    return _ReadSource(
        source, profile, turn, verdict, speaks, text_reading(lines[-policy.tail_lines :])
    )


def _read_text(
    lines: list[str],
    source: Source,
    reader: MessageReader,
    policy: Policy,
    first_line: int = 1,
    *,
    is_kept: bool = False,
    alone: bool = False,
) -> TextVerdict:
    """The verdict on plain lines. `is_kept`: they are an error from a client's list of its errors,
    of which an unknown one ended nothing. `alone`: no known agent's records are with them, so the
    text may be read as a whole."""
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    skipped = max(0, len(lines) - policy.tail_lines)
    if source.channel in _PROMPTLESS and all(_QUOTED.match(each) for each in lines[skipped:]):
        lines = [_QUOTED.sub("", each) for each in lines]
    read = unwrap(lines[skipped:], first_line + skipped)
    parts = units(
        read,
        errors_only=source.channel == "http-body"
        or (source.channel in _STREAMS and is_answer_page(read)),
        logs=source.channel not in _CONVERSATION,
    )
    dialog = dialog_sign(read, source.name) if source.channel in _SCREENS else None
    if dialog is None and not any(u.voice is not Voice.MUTED or u.under_tool for u in parts):
        return TextVerdict()
    talk = source.channel in _CONVERSATION
    if talk:
        reader = replace(reader, in_errors=False)
    generic = not talk and source.channel != "log"
    if source.channel == "http-body" and (refused := _REFUSED.search(source.text)):
        return TextVerdict((_refusal(refused[0], source.name),))
    if source.channel == "http-body" and (_ANSWERED.match(source.text) or _is_other(source.text)):
        return TextVerdict()
    if source.channel == "http-body":
        is_odd = is_faulty(source.text) or is_string(source.text)
        generic = is_odd and not is_kept
    verdict = last_message(parts, reader, source.name, generic_errors=generic)
    if talk:  # in a conversation, a crash is that of a program that the agent ran
        verdict = _without(verdict, StopReason.CRASH)
    if alone and not (dialog or is_kept):
        fields = source.channel == "http-body" and not generic and source.text.lstrip()[:1] in '{["'
        if fields:  # nothing in it reports a failure, so the names of its fields mean nothing
            spoken = tuple(s for s in verdict.signs if not is_family(s.evidence.rule))
            verdict = replace(verdict, signs=spoken)
        verdict = temper(
            verdict, parts, reader, source.name, channel=source.channel, may_fill=not fields
        )
    if is_kept:
        verdict = _without(verdict, StopReason.ERROR)
    return (
        verdict
        if dialog is None
        else replace(verdict, signs=(*verdict.signs, dialog), answered=False)
    )


def _without(verdict: TextVerdict, reason: StopReason) -> TextVerdict:
    return replace(verdict, signs=tuple(s for s in verdict.signs if s.reason is not reason))


def _refusal(quote: str, name: str) -> Sign:
    return Sign(
        reason=StopReason.REFUSAL,
        rank=Rank.TEXT,
        strength=Strength.CODE,
        evidence=Evidence("openai.refusal", quote_of(quote), f"{name}:1"),
        message=quote_of(quote),
    )


def _is_other(text: str) -> bool:
    """Whether a text is one whole JSON value without any field that errors have."""
    if text.lstrip()[:1] not in ("{", "[") or _FAILED.search(text):
        return False
    return decode(text) is not None


def _workflow_events(flow: markdown.Workflow, name: str) -> list[Event]:
    if flow.is_complete:
        return [Ended(ok=True, code=flow.status or "every step is done", where=f"{name}:1")]
    return []
