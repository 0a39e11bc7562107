"""What stop messages claim: a subject and its predicate, the reason they support, and a weight.

The terms are data (`segue/wordings/concepts/terms.toml`). Weights are whole numbers and halves, by
how much a claim says on its own; they are not fitted to any message.
"""

from msgspec import Struct

from segue.core.stops.reasons import StopReason

_R = StopReason


class Claim(Struct, frozen=True):
    """A subject and its predicate (`says` is empty if the subject says it all)."""

    reason: StopReason
    of: str
    says: str
    weight: float


CLAIMS = (
    Claim(_R.RATE_LIMIT, "plan_limit", "reached", 3.5),
    Claim(_R.RATE_LIMIT, "limit", "reached", 2.0),
    Claim(_R.RATE_LIMIT, "limit", "later", 2.5),
    Claim(_R.RATE_LIMIT, "many", "", 3.5),
    Claim(_R.BILLING, "money", "lacking", 3.5),
    Claim(_R.BILLING, "must_pay", "", 3.0),
    Claim(_R.CONTEXT_EXHAUSTED, "window", "too_big", 3.5),
    Claim(_R.CONTEXT_EXHAUSTED, "window_line", "", 3.5),
    Claim(_R.AUTH, "login", "denied", 3.0),
    Claim(_R.AUTH, "login_line", "", 3.5),
    Claim(_R.OVERLOADED, "far", "away", 3.0),
    Claim(_R.OVERLOADED, "outage", "", 3.0),
    Claim(_R.TIMEOUT, "timer", "", 3.5),
    Claim(_R.CRASH, "died", "", 3.5),
    Claim(_R.REFUSAL, "blocked", "", 3.0),
    Claim(_R.REFUSAL, "content", "barred", 3.0),
    Claim(_R.MAX_TURNS, "turns", "used_up", 3.5),
    Claim(_R.MAX_BUDGET, "purse", "used_up", 3.5),
    Claim(_R.USER_EXIT, "left", "", 3.0),
    Claim(_R.USER_EXIT, "farewell", "", 3.0),
    Claim(_R.NEEDS_USER, "consent", "asked", 3.0),
    Claim(_R.NEEDS_USER, "wants", "", 3.0),
    Claim(_R.NEEDS_USER, "awaits", "", 3.5),
    Claim(_R.NEEDS_USER, "consent", "unattended", 3.5),
    Claim(_R.ERROR, "fault", "", 2.5),
    Claim(_R.ERROR, "fault_line", "", 3.0),
    Claim(_R.ERROR, "named_model", "", 3.5),
    Claim(_R.ERROR, "thing", "absent", 2.5),
    Claim(_R.ERROR, "answer_cap", "too_big", 3.5),
)
SUBJECTS = {claim.of for claim in CLAIMS}
TELLING = ("must_pay", "login_line", "window_line")
"""Subjects that count even in advice, because nobody gives that advice for another reason."""
TELLING_ALONE = ("must_pay", "login_line")
"""Those of them that count even in a plain line that is only advice."""

TAKES: dict[StopReason, tuple[StopReason, ...]] = {
    _R.CONTEXT_EXHAUSTED: (_R.RATE_LIMIT, _R.OVERLOADED, _R.CRASH, _R.ERROR),
    _R.BILLING: (_R.RATE_LIMIT, _R.OVERLOADED, _R.AUTH, _R.ERROR),
    _R.AUTH: (_R.OVERLOADED, _R.ERROR),
    _R.MAX_BUDGET: (_R.RATE_LIMIT, _R.BILLING, _R.CONTEXT_EXHAUSTED, _R.ERROR),
    _R.MAX_TURNS: (_R.RATE_LIMIT, _R.CONTEXT_EXHAUSTED, _R.ERROR),
    _R.REFUSAL: (_R.OVERLOADED, _R.AUTH, _R.ERROR),
    _R.TIMEOUT: (_R.OVERLOADED, _R.ERROR),
    _R.CRASH: (_R.OVERLOADED, _R.ERROR),
    _R.RATE_LIMIT: (_R.OVERLOADED, _R.ERROR),
    _R.OVERLOADED: (_R.ERROR,),
    _R.USER_EXIT: (_R.OVERLOADED,),
    _R.NEEDS_USER: (_R.AUTH, _R.ERROR),
}
"""Reasons, and the reasons they resemble: the effect loses weight if the cause is present."""
TAKEN = 1.5
VAGUE = (_R.OVERLOADED, _R.ERROR)
TELLS_WHY = (_R.CONTEXT_EXHAUSTED, _R.BILLING, _R.REFUSAL, _R.TIMEOUT, _R.MAX_TURNS, _R.MAX_BUDGET)
"""Reasons that explain "internal error" and "bad request" wherever they occur, however often these
are said."""
SURE = 3.0
"""From this weight on, a reason takes weight from its effects."""

BY_STATUS: dict[int, tuple[StopReason, float]] = {
    400: (_R.ERROR, 1.0),
    401: (_R.AUTH, 3.0),
    402: (_R.BILLING, 3.5),
    403: (_R.AUTH, 1.5),
    404: (_R.ERROR, 1.5),
    408: (_R.TIMEOUT, 2.5),
    413: (_R.CONTEXT_EXHAUSTED, 2.0),
    422: (_R.ERROR, 1.0),
    429: (_R.RATE_LIMIT, 1.5),
    504: (_R.TIMEOUT, 3.0),
    522: (_R.OVERLOADED, 3.5),
    524: (_R.TIMEOUT, 3.5),
}
SERVER_STATUS = (_R.OVERLOADED, 2.0)

CODE_WEIGHT = 3.0
"""The weight of a record's own code."""
STATUS_WEIGHT = 1.5
"""The weight of a record's status."""
CODED = 0.7
"""The share of a claim's weight if a code makes it, because providers reuse codes."""
ADVISED = 0.5
"""The share of a claim's weight if it is made in advice."""
FAULT = 2.5
"""The weight that an error needs where errors are common, as in a log."""
ENOUGH = 2.0
"""The weight that a reason needs inside an error."""
ENOUGH_ALONE = 3.0
"""The weight that a reason needs where nothing else shows that this is an error."""
