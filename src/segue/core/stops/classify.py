"""The verdict: signs in, one stop out.

Rank comes first: a structured record of the final turn, then text in which the agent itself
reports an error, then exit code and signal. Within a rank the sign that names its reason most
exactly wins (`Strength`); between equals, `composition` decides. Reasons that lost are in `also`.

Two rules keep weak structure from hiding strong text. A closing record that says "failed" and
nothing else has the rank of an exit code. And once a stream has closed, the session
file only adds details and does not decide how the turn ended, because it may lag behind.

Exit code 0 with a success is `completed`. A full window is reported as a risk, and is a verdict
only if nothing else explains the stop. docs/classify.md lists the rules that may surprise.

All in one file, because the rules apply in one order.
"""

from msgspec import Struct
from msgspec.structs import replace

from segue.core.policy import Policy
from segue.core.sessions import windows
from segue.core.stops import composition, exits
from segue.core.stops.claims.table import CODE_WEIGHT, STATUS_WEIGHT
from segue.core.stops.claims.vocabulary import Spoken
from segue.core.stops.confidence import confidence
from segue.core.stops.confidence import weighed as confidence_of
from segue.core.stops.events import Failure, Retry
from segue.core.stops.exits import ExitFlags
from segue.core.stops.fold import Turn
from segue.core.stops.reasons import StopReason
from segue.core.stops.remedies import remedy
from segue.core.stops.text.reader import LONG_RETRY_S, MessageReader
from segue.core.stops.text.text_verdict import TextVerdict
from segue.core.stops.types import (
    ContextExhaustionInfo,
    Details,
    EndedBy,
    Evidence,
    FailureInfo,
    Rank,
    RateLimitInfo,
    Reset,
    Sign,
    Stop,
    Strength,
    Tokens,
    UserExitInfo,
    UserExitType,
)

_EXPLAINS_NOTHING = ("exit.nonzero", "exit.clean")


class Witness(Struct, frozen=True, kw_only=True):
    """Everything known about how a leg ended, already parsed."""

    stream: Turn | None = None  # what the agent printed, if it printed records
    session: Turn | None = None  # its session file
    verdicts: tuple[TextVerdict, ...] = ()  # verdicts on plain text, by source
    exit_code: int | None = None
    ended_by: EndedBy = "unknown"
    exit_flags: ExitFlags = exits.NO_FLAGS
    printed_answer: bool = False  # plain text on stdout, as a run in text mode leaves it
    silent: bool = False  # nothing was printed at all
    zero_means_done: bool = False  # in text mode, this agent's exit code 0 proves success
    exit_tells: bool = False  # only its exit code says whether it is done
    tokens: Tokens | None = None  # a reading from another source
    typed_exit: str = ""  # the only word in the text, if it is one that ends a session
    notes: tuple[str, ...] = ()  # other information from its files


class Judgement(Struct, frozen=True, kw_only=True):
    """A stop with all evidence for and against it, for `segue explain`."""

    stop: Stop
    signs: tuple[Sign, ...]  # the winner first
    lost: tuple[Sign, ...]  # found, but not counted


def classify(witness: Witness, reader: MessageReader, policy: Policy) -> Judgement:
    """Says why it stopped. Pure: the same witness always gives the same judgement."""
    signs = _signs(witness, reader)
    tokens = _tokens(witness, signs, policy)
    risk = _at_risk(tokens, policy)
    ended = witness.exit_code is not None or witness.ended_by != "unknown"
    if risk and ended and all(sign.evidence.rule in _EXPLAINS_NOTHING for sign in signs):
        signs.append(_from_risk(tokens))
    signs = list({(s.reason, s.evidence.rule, s.evidence.where): s for s in signs}.values())
    signs = composition.ordered(signs)
    lost = tuple(sign for verdict in witness.verdicts for sign in verdict.lost)
    stop = _stop(signs, witness, reader, policy, tokens, risk)
    notes = _window_notes(tokens, _stated_tokens(witness, signs), policy)
    stop = replace(stop, notes=(*witness.notes, *notes))
    return Judgement(stop=stop, signs=tuple(signs), lost=lost)


def _signs(witness: Witness, reader: MessageReader) -> list[Sign]:
    stream, session = witness.stream, witness.session
    signs: list[Sign] = []
    if stream is not None:
        signs += _of_turn(stream, reader)
    if session is not None:
        from_session = _of_turn(session, reader)
        if stream is not None and stream.ended is not None and stream.ended.ok:
            from_session = []
        elif _failed(witness):
            from_session = [s for s in from_session if s.reason is not StopReason.COMPLETED]
        signs += from_session
    for verdict in witness.verdicts:
        if witness.exit_code == 0 and verdict.answered:  # an answer and a clean exit follow
            signs += [sign for sign in verdict.signs if sign.reason is StopReason.COMPLETED]
        elif _failed(witness):
            signs += [sign for sign in verdict.signs if not _only_reads_done(sign)]
        else:
            signs += verdict.signs
    cut = stream is not None and stream.is_cut and not _structured(signs)
    signs += exits.signs(
        witness.exit_code,
        witness.ended_by,
        flags=witness.exit_flags,
        cut=cut,
        silent=witness.silent,
    )
    waits = any(
        sign.reason is StopReason.NEEDS_USER and not _outlived(sign, witness) for sign in signs
    )
    known = witness.ended_by != "unknown" or waits
    if witness.exit_tells and witness.exit_code is not None and witness.ended_by == "unknown":
        if witness.exit_code != 0:
            return [sign for sign in signs if sign.reason is not StopReason.COMPLETED]
        signs.append(_told_by_exit())
    elif witness.exit_code == 0 and not known:
        if witness.printed_answer:
            signs.append(_clean_exit(witness.zero_means_done))
        elif not signs and (witness.silent or not witness.verdicts):
            signs.append(_leaving_sign())
    if witness.typed_exit and not known:
        signs.append(_farewell_sign(witness.typed_exit))
    if witness.ended_by == "segue":
        # What the agent takes for the user's interrupt was segue's.
        signs = [sign for sign in signs if sign.reason is not StopReason.USER_EXIT]
    return signs


def _only_reads_done(sign: Sign) -> bool:
    """Whether a text only reads as if the work were done: the end of the process knows better."""
    return sign.reason is StopReason.COMPLETED and sign.rank is Rank.EXIT


def _failed(witness: Witness) -> bool:
    """Whether the end of the process contradicts a session that had closed successfully."""
    if witness.stream is not None and witness.stream.ended is not None:
        return not witness.stream.ended.ok
    code = witness.exit_code
    return bool(code) and exits.signal_of(code, witness.exit_flags) is None


def _outlived(sign: Sign, witness: Witness) -> bool:
    """Whether the run continued after a question to the user, so that the question cannot be its
    end. If the agent answered and exited with the code by which it reports success, a tool printed
    the question, unless it is the agent's own notice that nobody was there to ask."""
    finished = witness.exit_code == 0 and witness.printed_answer and witness.zero_means_done
    return finished and sign.rank is Rank.TEXT and not sign.by_name


def _structured(signs: list[Sign]) -> bool:
    """Whether any structured record of the final turn is evidence."""
    return any(sign.rank is Rank.STRUCTURE for sign in signs)


def _of_turn(turn: Turn, reader: MessageReader) -> list[Sign]:
    ended, failure = turn.ended, turn.failure
    if ended is not None and ended.ok and ended.reason is None:
        words = ended.code or "the agent says that it is done"
        return [_coded(StopReason.COMPLETED, "closing_record", words, ended.where)]
    records = [record for record in (ended, failure) if record is not None]
    signs = [sign for record in records for sign in _of_record(record, reader)]
    if turn.waiting is not None and (turn.waiting.wait_s or 0) > LONG_RETRY_S:
        signs += _of_wait(turn.waiting, reader)
    if turn.limit is not None:
        signs.append(_coded(StopReason.RATE_LIMIT, "limit", "rejected", turn.limit.where))
    if turn.compaction is not None:
        words, where = turn.compaction.message, turn.compaction.where
        quote = words or f"compaction {turn.compaction.phase}"
        signs += reader.message(words, where)
        signs.append(_coded(StopReason.CONTEXT_EXHAUSTED, "compaction", quote, where))
    if not signs and records:
        signs.append(_failed_somehow(records[0]))
    return signs


def _of_record(record: Failure, reader: MessageReader) -> list[Sign]:
    signs = reader.message(record.message, record.where, record.at, _statements(record))
    if record.reason is not None:
        code = record.code or record.reason.value
        signs.append(_coded(record.reason, "code", code, record.where))
    elif (reason := exits.reason_of_status(record.status)) is not None:
        status = _coded(reason, "status", f"HTTP {record.status}", record.where)
        signs.append(replace(status, strength=Strength.HINT, message=record.message))
    return _caused(signs)


def _statements(record: Failure) -> tuple[Spoken, ...]:
    """What a record says besides its message, to be weighed with the message's claims."""
    spoken: list[Spoken] = []
    if record.reason is not None:
        spoken.append((record.reason, CODE_WEIGHT, record.code or record.reason.value))
    if (reason := exits.reason_of_status(record.status)) is not None:
        spoken.append((reason, STATUS_WEIGHT, f"HTTP {record.status}"))
    return tuple(spoken)


def _failed_somehow(record: Failure) -> Sign:
    """The sign of a failure without details; anything more specific takes precedence."""
    quote = record.message or record.code or "failed"
    sign = _coded(StopReason.ERROR, "failed", quote, record.where)
    return replace(sign, rank=Rank.EXIT, strength=Strength.HINT, message=record.message)


def _of_wait(waiting: Retry, reader: MessageReader) -> list[Sign]:
    """The sign of an agent that retries by itself, but only after minutes or hours."""
    wait_s = waiting.wait_s or 0.0
    since = reader.now if waiting.at is None else waiting.at
    reset = Reset(at=since + wait_s, after_s=wait_s, source="record")
    reason = exits.reason_of_status(waiting.status)
    signs = reader.message(waiting.message, waiting.where, waiting.at)
    if reason is not None:
        signs.append(_coded(reason, "waiting", f"waits {wait_s:.0f} s", waiting.where))
    return [replace(sign, reset=reset) for sign in signs]


def _caused(signs: list[Sign]) -> list[Sign]:
    """Lowers an error without a cause (a bare 400) to the rank of an exit code."""
    return [
        replace(s, rank=Rank.EXIT)
        if s.reason is StopReason.ERROR and s.strength < Strength.CODE
        else s
        for s in signs
    ]


def _coded(reason: StopReason, rule: str, quote: str, where: str) -> Sign:
    return Sign(
        reason=reason,
        rank=Rank.STRUCTURE,
        strength=Strength.CODE,
        evidence=Evidence(f"structure.{rule}", quote, where),
    )


def _clean_exit(proves: bool) -> Sign:
    return Sign(
        reason=StopReason.COMPLETED,
        rank=Rank.STRUCTURE if proves else Rank.EXIT,
        strength=Strength.HINT,
        evidence=Evidence("exit.clean", "exit code 0 after an answer", "exit"),
    )


def _told_by_exit() -> Sign:
    return Sign(
        reason=StopReason.COMPLETED,
        rank=Rank.STRUCTURE,
        strength=Strength.OWN,
        evidence=Evidence("exit.done", "exit code 0", "exit"),
    )


def _leaving_sign() -> Sign:
    """The sign of exit code 0 and nothing else: most likely, somebody left the session."""
    return Sign(
        reason=StopReason.USER_EXIT,
        rank=Rank.EXIT,
        strength=Strength.HINT,
        evidence=Evidence("exit.clean", "exit code 0 and nothing else", "exit"),
    )


def _farewell_sign(word: str) -> Sign:
    """The sign of a lone word with which people leave, and exit code 0."""
    return Sign(
        reason=StopReason.USER_EXIT,
        rank=Rank.TEXT,
        strength=Strength.SENTENCE,
        evidence=Evidence("exit.typed", f"{word}, and exit code 0", "exit"),
        scope=UserExitType.EXIT_COMMAND.value,
    )


def _from_risk(tokens: Tokens | None) -> Sign:
    assert tokens is not None
    return Sign(
        reason=StopReason.CONTEXT_EXHAUSTED,
        rank=Rank.EXIT,
        strength=Strength.HINT,  # its priority already beats a bare error
        evidence=Evidence(
            "usage.context_risk", f"{tokens.used} of {tokens.window} tokens", "usage"
        ),
        tokens=tokens,
    )


def _tokens(witness: Witness, signs: list[Sign], policy: Policy) -> Tokens | None:
    """The size that the message states, otherwise the last reading; if nobody stated the window,
    the model's."""
    found = _stated_tokens(witness, signs)
    if found is None or found.window:
        return found
    model = next((t.model for t in (witness.stream, witness.session) if t and t.model), "")
    if not model:
        return found
    window = windows.window_tokens(model, policy.known_windows, policy.default_window_tokens)
    # More than the assumed window was accepted, so the assumption is wrong.
    return Tokens(found.used, windows.raised(window, found.used))


def _window_notes(tokens: Tokens | None, stated: Tokens | None, policy: Policy) -> tuple[str, ...]:
    """Notes about a window that was assumed, not stated."""
    if tokens is None or stated is None or stated.window:
        return ()
    if tokens.window is None:
        return (f"the window is unknown; assuming {policy.default_window_tokens:,} tokens",)
    return (f"the window was not stated; {tokens.window:,} tokens by the model's name and use",)


def _stated_tokens(witness: Witness, signs: list[Sign]) -> Tokens | None:
    stated = [s.tokens for s in signs if s.tokens and s.reason is StopReason.CONTEXT_EXHAUSTED]
    if stated:
        return next((t for t in stated if t.window), stated[0])
    for turn in (witness.session, witness.stream):
        if turn is not None and turn.tokens is not None:
            return turn.tokens
    return witness.tokens


def _at_risk(tokens: Tokens | None, policy: Policy) -> bool:
    if tokens is None:
        return False
    window = tokens.window or policy.default_window_tokens
    return tokens.used >= policy.context_risk_mark * window


def _stop(
    signs: list[Sign],
    witness: Witness,
    reader: MessageReader,
    policy: Policy,
    tokens: Tokens | None,
    risk: bool,
) -> Stop:
    unread = sum(t.unread for t in (witness.stream, witness.session) if t)
    if not signs:
        return Stop(
            reason=StopReason.UNKNOWN,
            confidence=_unexplained(witness),
            resume=policy.resume_after(StopReason.UNKNOWN),
            tokens=tokens,
            context_risk=risk,
            remediation=remedy(StopReason.UNKNOWN),
            ended_by=witness.ended_by,
            unread=unread,
        )
    best = signs[0]
    reason = best.reason
    agreeing = [s for s in signs if s.reason is reason]
    # That a failure is also "an error" helps nobody.
    vague = StopReason.ERROR if reason is not StopReason.COMPLETED else None
    outdone = (s for verdict in witness.verdicts for s in verdict.lost if s.outdone)
    reasons = dict.fromkeys(s.reason for s in (*signs, *outdone))
    also = tuple(r for r in reasons if r not in (reason, vague))
    reset = _reset(agreeing, witness, reason, reader.now)
    retry_at = reset.at if reset else None
    return Stop(
        reason=reason,
        confidence=confidence(best),
        evidence=_evidence(agreeing),
        also=also,
        resume=policy.resume_after(reason),
        retry_at=retry_at,
        retry_after_s=None if retry_at is None else round(max(0.0, retry_at - reader.now), 3),
        tokens=tokens,
        context_risk=risk,
        details=_details(reason, agreeing, witness, tokens, reset),
        remediation=remedy(
            reason,
            resume=policy.resume_after(reason),
            sure=confidence(best) >= policy.min_confidence,
            past=retry_at is not None and retry_at <= reader.now,
            scope=_scope(agreeing, witness),
            window_tokens=tokens.window if tokens else None,
        ),
        ended_by=witness.ended_by,
        unread=unread,
    )


def _unexplained(witness: Witness) -> float:
    """How sure it is that what nothing explains is no stop: as sure as the least clear text."""
    weighed = [verdict.sure for verdict in witness.verdicts if verdict.sure is not None]
    if weighed:
        return confidence_of(min(weighed))
    return confidence(None, read=bool(witness.verdicts) and not witness.silent)


def _evidence(agreeing: list[Sign]) -> tuple[Evidence, ...]:
    """The strongest sign from each place; the weaker ones there only repeat it."""
    strongest: dict[str, Evidence] = {}
    for sign in agreeing:
        strongest.setdefault(sign.evidence.where, sign.evidence)
    return tuple(strongest.values())


def _reset(signs: list[Sign], witness: Witness, reason: StopReason, now: float) -> Reset | None:
    """The most reliable reset: a record's own field first, then what a sentence says."""
    if reason not in (StopReason.RATE_LIMIT, StopReason.OVERLOADED):
        return None
    for turn in (witness.stream, witness.session):
        if turn is None:
            continue
        if reason is StopReason.RATE_LIMIT and turn.limit and turn.limit.resets_at is not None:
            return Reset(at=turn.limit.resets_at, source="record")
        for record in (turn.ended, turn.failure):
            if record is None:
                continue
            if record.resets_at is not None:
                return Reset(at=record.resets_at, source="record")
            if record.retry_after_s is not None:
                return Reset(
                    at=(now if record.at is None else record.at) + record.retry_after_s,
                    after_s=record.retry_after_s,
                    source="header",
                )
    return next((s.reset for s in signs if s.reset is not None), None)


def _scope(signs: list[Sign], witness: Witness) -> str | None:
    for turn in (witness.stream, witness.session):
        if turn is not None and turn.limit is not None and turn.limit.scope:
            return turn.limit.scope
    return next((s.scope for s in signs if s.scope), None)


def _details(
    reason: StopReason,
    signs: list[Sign],
    witness: Witness,
    tokens: Tokens | None,
    reset: Reset | None,
) -> Details | None:
    message = next((s.message for s in signs if s.message), "")
    match reason:
        case StopReason.RATE_LIMIT:
            return RateLimitInfo(
                scope=_scope(signs, witness),
                retry_source=reset.source if reset else None,
                message=message,
            )
        case StopReason.CONTEXT_EXHAUSTED:
            window = tokens.window if tokens else None
            return ContextExhaustionInfo(
                used_tokens=tokens.used if tokens else None,
                window_tokens=window,
                percent=round(100 * tokens.used / window, 1) if tokens and window else None,
                message=message,
            )
        case StopReason.USER_EXIT:
            return UserExitInfo(
                exit_type=_exit_type(signs, witness),
                exit_code=witness.exit_code,
                message=message,
            )
        case StopReason.COMPLETED | StopReason.UNKNOWN:
            return None
    return FailureInfo(
        message=message,
        code=_code(witness),
        status=_status(witness),
        exit_code=witness.exit_code,
        signal=exits.signal_of(witness.exit_code, witness.exit_flags),
        scope=_NETWORK if _status(witness) is None and _is_network(signs) else None,
    )


_NETWORK = "network"


def _is_network(signs: list[Sign]) -> bool:
    return any(sign.scope == _NETWORK for sign in signs)


def _exit_type(signs: list[Sign], witness: Witness) -> UserExitType:
    by_signal = exits.exit_type(witness.exit_code, witness.exit_flags)
    if by_signal is not None:
        return by_signal
    scope = next((s.scope for s in signs if s.scope in set(UserExitType)), None)
    if scope is not None:
        return UserExitType(scope)
    if signs[0].rank is Rank.STRUCTURE:
        stated = (r.exit_type for r in _failures(witness) if r.exit_type is not None)
        return next(stated, UserExitType.CTRL_C)
    return UserExitType.CLEAN_EXIT if witness.exit_code == 0 else UserExitType.TERMINATED


def _failures(witness: Witness) -> list[Failure]:
    """The failures, those from the session file first because its codes are more specific than the
    stream's."""
    turns = [t for t in (witness.session, witness.stream) if t is not None]
    ended = (t.ended for t in turns)
    bad = [e for e in ended if e is not None and not e.ok]
    return [*bad, *(t.failure for t in turns if t.failure is not None)]


def _code(witness: Witness) -> str | None:
    return next((r.code for r in _failures(witness) if r.code), None)


def _status(witness: Witness) -> int | None:
    return next((r.status for r in _failures(witness) if r.status), None)
