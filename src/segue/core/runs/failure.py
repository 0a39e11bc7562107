"""Normalises a failure, so that the same failure looks the same when it happens again."""

import re

from segue.core.stops.types import Stop

MAX_CHARS = 300
_READ_CHARS = 4_000  # the text of a failure may be endless; its beginning identifies it

# In this order: longer and more specific patterns first. All are bounded, so the time is linear.
_SHAPES = tuple(
    (re.compile(pattern, re.IGNORECASE), name)
    for pattern, name in (
        (
            r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?)?"
            r"(?:Z\b|[+-]\d\d:?\d\d\b)?",
            "<time>",
        ),
        (r"\b\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?[ap]m\b)?", "<time>"),
        (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<id>"),
        (r"\b0x[0-9a-f]{1,64}\b", "<hex>"),
        (r"\b(?=[a-z]{0,64}\d)(?=\d{0,64}[a-f])[0-9a-f]{7,128}\b", "<hex>"),
        # A drive or a root, and two parts at least: "and/or" and "/clear" are words.
        (r"(?<![\w<./])(?:[a-z]:|~|\.{1,2})?(?:[/\\][\w.@+~%-]{1,255}){2,64}[/\\]?", "<path>"),
        # Letters and digits mixed, as in req_011CSxyz or run-3f9a.
        (r"\b(?=[\w-]{0,64}\d)(?=[\w-]{0,64}[a-z])\w[\w-]{10,254}\w", "<id>"),
        (r"\d+(?:[.,_]\d+)*", "<n>"),
    )
)
_SPACE = re.compile(r"\s+")


def normalise(text: str) -> str:
    """The text without anything that varies from one time to the next: times, ids, paths and
    numbers. One line of at most `MAX_CHARS` characters."""
    found = _SPACE.sub(" ", text[:_READ_CHARS]).strip()
    for shape, name in _SHAPES:
        found = shape.sub(name, found)
    return found.lower()[:MAX_CHARS].strip()


def failure_of(stop: Stop) -> str:
    """What the breaker compares: the reason, and the agent's message. Two stops of which only
    the reason is known count as the same failure."""
    message = stop.details.message if stop.details else ""
    quote = stop.evidence[0].quote if stop.evidence else ""
    return normalise(f"{stop.reason}: {message or quote}")
