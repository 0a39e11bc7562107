"""What an exit code and a signal mean. These signs have the lowest rank, because agents exit with 0
after failures and with 1 for everything.
"""

import signal as signals

from msgspec import Struct

from segue.core.stops.reasons import StopReason
from segue.core.stops.types import EndedBy, Evidence, Rank, Sign, Strength, UserExitType

TIMEOUT_CODE = 124  # timeout(1), and the harnesses that follow it
_SHELL_BASE = 128
_USER = {
    signals.SIGINT: UserExitType.CTRL_C,
    signals.SIGQUIT: UserExitType.CTRL_C,
    signals.SIGHUP: UserExitType.TERMINAL_CLOSED,
    signals.SIGTERM: UserExitType.TERMINATED,
}
# Usually sent by the user. TERM and HUP may also come from a reboot or a lost connection.
_BY_HAND = (signals.SIGINT, signals.SIGQUIT)
_SIGNAL_MAX = 31


class ExitFlags(Struct, frozen=True, kw_only=True):
    """What a profile knows about its agent's exit codes."""

    reasons: dict[int, StopReason]
    cut_reasons: dict[int, StopReason]
    silent_reasons: dict[int, StopReason]
    is_http_status: bool = False


NO_FLAGS = ExitFlags(reasons={}, cut_reasons={}, silent_reasons={})


def signal_of(exit_code: int | None, flags: ExitFlags = NO_FLAGS) -> int | None:
    """The signal behind an exit code: negative as Python reports it, or 128 + n as shells do."""
    if exit_code is None:
        return None
    if exit_code < 0:
        return -exit_code if -exit_code <= _SIGNAL_MAX else None
    number = exit_code - _SHELL_BASE
    if not 1 <= number <= _SIGNAL_MAX:
        return None
    if flags.is_http_status and status_of(exit_code, flags) in _HTTP:
        return None
    return number


_HTTP = {
    400: StopReason.ERROR,
    401: StopReason.AUTH,
    402: StopReason.BILLING,
    403: StopReason.AUTH,
    404: StopReason.ERROR,
    408: StopReason.TIMEOUT,
    413: StopReason.CONTEXT_EXHAUSTED,
    422: StopReason.ERROR,
    429: StopReason.RATE_LIMIT,
    500: StopReason.OVERLOADED,
    502: StopReason.OVERLOADED,
    503: StopReason.OVERLOADED,
    504: StopReason.OVERLOADED,
    529: StopReason.OVERLOADED,
}


def reason_of_status(status: int | None) -> StopReason | None:
    """What an HTTP status alone says about a failed request."""
    if status is None or status < 400:
        return None
    if status in _HTTP:
        return _HTTP[status]
    return StopReason.OVERLOADED if status >= 500 else StopReason.ERROR


def status_of(exit_code: int, flags: ExitFlags) -> int | None:
    """The HTTP status, for a client that exits with the status modulo 256."""
    return exit_code + 256 if flags.is_http_status and exit_code >= 144 else None


def exit_type(exit_code: int | None, flags: ExitFlags = NO_FLAGS) -> UserExitType | None:
    """How the user ended a process with this exit code, if a signal shows it."""
    number = signal_of(exit_code, flags)
    return _USER.get(signals.Signals(number)) if number in {int(s) for s in _USER} else None


def signs(
    exit_code: int | None,
    ended_by: EndedBy,
    *,
    flags: ExitFlags = NO_FLAGS,
    cut: bool = False,
    silent: bool = False,
) -> list[Sign]:
    """The signs of an exit. `cut`: there are records, but no closing one. `silent`: nothing was
    printed."""
    if ended_by != "unknown":
        by = {
            "user": StopReason.USER_EXIT,
            "segue": StopReason.TIMEOUT,
            "system": StopReason.CRASH,
        }[ended_by]
        return [_sign(by, Strength.SENTENCE, f"ended_by.{ended_by}", f"ended by {ended_by}")]
    if exit_code is None:
        return []
    quote = f"exit code {exit_code}"
    if exit_code in flags.reasons:
        return [_sign(flags.reasons[exit_code], Strength.CODE, "exit.agent", quote)]
    if silent and exit_code in flags.silent_reasons:
        return [_sign(flags.silent_reasons[exit_code], Strength.PHRASE, "exit.silent", quote)]
    if cut and exit_code in flags.cut_reasons:
        return [_sign(flags.cut_reasons[exit_code], Strength.PHRASE, "exit.cut", quote)]
    number = signal_of(exit_code, flags)
    if number is not None:
        return [_of_signal(number, quote)]
    if (status := status_of(exit_code, flags)) is not None and (reason := reason_of_status(status)):
        return [_sign(reason, Strength.CODE, "exit.http_status", f"{quote} (HTTP {status})")]
    if exit_code == TIMEOUT_CODE:
        return [_sign(StopReason.TIMEOUT, Strength.CODE, "exit.timeout", quote)]
    if exit_code != 0:
        return [_sign(StopReason.ERROR, Strength.HINT, "exit.nonzero", quote)]
    return []


def _of_signal(number: int, quote: str) -> Sign:
    try:
        known = signals.Signals(number)
    except ValueError:
        return _sign(StopReason.CRASH, Strength.HINT, "exit.signal", quote)
    quote = f"{quote} ({known.name})"
    if known in _BY_HAND:
        return _sign(StopReason.USER_EXIT, Strength.CODE, "exit.signal", quote)
    if known in _USER:
        return _sign(StopReason.USER_EXIT, Strength.HINT, "exit.signal", quote)
    if known is signals.SIGALRM:
        return _sign(StopReason.TIMEOUT, Strength.CODE, "exit.signal", quote)
    return _sign(StopReason.CRASH, Strength.CODE, "exit.signal", quote)


def _sign(reason: StopReason, strength: Strength, rule: str, quote: str) -> Sign:
    return Sign(
        reason=reason,
        rank=Rank.EXIT,
        strength=strength,
        evidence=Evidence(rule, quote, "exit"),
    )
