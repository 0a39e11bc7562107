"""Removes secrets from texts that are stored or sent: checkpoints, notes, logs, events.

Secrets are recognised by format (a known vendor's key), by place (a password in a command, a
header, a URL) and by name (what is called a password). The rules for the first two are package
data, `secrets/*.toml`. RE2 over bytes takes linear time for any text, and lone surrogates pass.
Names stay and values are replaced; a value found once is replaced everywhere in the text.
"""

from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from typing import Any

from segue.core.secrets.calls import handed
from segue.core.secrets.context import password_spans
from segue.core.secrets.lines import merged, suspicious
from segue.core.secrets.names import named
from segue.core.secrets.rules import WordSets, rule, rules
from segue.core.secrets.values import FITS, MARK, is_bare, is_mixed, is_placeholder, is_random

__all__ = ["HINTS", "MARK", "OVER_LINES", "redact", "redact_blocks", "scrub"]

_PASSES = 4  # for what an earlier pass uncovers; one is enough except for contrived texts
_KEY_BYTES = 20_000  # a private key is no longer; BEGIN and END further apart are two mentions
_AGAIN = 100  # the maximum number of values to look for elsewhere in the same text
OVER_LINES = (
    "PRIVATE KEY",
    "Static key",
    "ANSIBLE_VAULT",
    "ecovery code",
    "ackup code",
    "assword:\n",
    "-password\n",
    "oken:\n",
    "-token\n",
    "auth-user-pass",
    "chpasswd:",
    '"password"\n',
    "  value:",
    "rivate-Lines",
    "kind: Secret",
    "ew value:",
    "\npassword ",
    "  password",
    ",password",
    "| password",
    "\tpassword",
    "ollowing password",
    "</key>\n",
    "]=>\n",
)
"""Without one of these, no secret spans several lines."""
HINTS = (
    *("assword", "chpasswd", "oken", " code", "value:", "]=>", "</key>", "tatic key"),
    *("PRIVATE KEY", "rivate-Lines", "kind: Secret", "ANSIBLE_VAULT", "auth-user-pass"),
)
"""Each text of `OVER_LINES` contains one of these, which are fewer."""
_MIN_CHARS = 8  # no text with a secret, and with what identifies it, is shorter
_AGAIN_BYTES = 8  # a shorter value may be a word, or a part of one

_URL = rb"[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@\"'<>]*:([^\s\"'<>]+)@"
_BARE = rb"[A-Za-z0-9_=.+/-]*(?:[0-9][A-Za-z]|[A-Za-z][0-9]|[a-z][A-Z])[A-Za-z0-9_=.+/-]{10,}"
_IDS_BEFORE = (
    rb"(?i)(?:sha-?[0-9]*|hash|digest|integrity|checksum|etag|fingerprint|md5|commit|cid|h1|public|base64"
    rb"|charset|alphabet|[a-z]_id|[a-z] id|[a-z]Id|\?b\?)"
    rb"[^\n]{0,12}$|/nix/store/$"
)
# the previous line is one, too
_DUMPED = rb"(?:[A-Za-z0-9+/=]{56,}|-----)[\"'\\nr,+]*\n[ \t\"'+]*$"
_DUMP_GOES_ON = rb"[\"'\\nr,+]*\n[ \t\"'+]*[A-Za-z0-9+/]{48}"
_KEY_BEGINS = rb"-----BEGIN [A-Za-z0-9 ]{0,40}(?:PRIVATE KEY(?: BLOCK)?|Static key V1)-----"
_KEY_ENDS = rb"-----END [A-Za-z0-9 ]{0,40}(?:PRIVATE KEY(?: BLOCK)?|Static key V1)-----"
_KEY_BODY = (
    rb"(?:(?:\s|\\[nr]){0,4}[+> |-]{0,4}"
    rb"(?:[A-Za-z0-9+/=]{16,}|[A-Za-z-]{2,20}: [^\n\\]{1,200}|[A-Za-z0-9+/]{1,15}={1,2}))*"
)

_CLEAN_TEXTS, _CLEAN_CHARS = 2_000, 300
_NUMBERS = frozenset({int, float, bool, type(None)})
_clean: set[str] = set()  # short texts without any secret


def redact(text: str) -> tuple[str, int]:
    """The text with each secret replaced by a mark, and how many there were. Redacting twice
    changes nothing more."""
    data = text.encode("utf-8", "surrogatepass")
    found = 0
    for _ in range(_PASSES):
        lines = suspicious(data)
        if lines is None:
            break
        spans = merged(sorted(map(lines.placed, _spans(lines.text))))
        if not spans:
            break
        spans = [_whole(data, span) for span in merged(sorted([*spans, *_again(data, spans)]))]
        found += len(spans)
        data = _without(data, spans)
    return (data.decode("utf-8", "surrogatepass"), found) if found else (text, 0)


def redact_blocks(text: str) -> str:
    """The text without secrets that span several lines, for callers that keep single lines of long
    texts and redact those later. Costs next to nothing if there are none."""
    for hint in HINTS:  # not `any`, because this runs on all output
        if hint in text:
            break
    else:
        return text
    return redact(text)[0] if any(word in text for word in OVER_LINES) else text


def scrub(value: Any) -> Any:
    """A value of plain lists, dicts and texts, with every text redacted. Names stay."""
    if isinstance(value, str):
        return _scrubbed(value) if len(value) >= _MIN_CHARS else value
    if isinstance(value, list | tuple):
        return [scrub(item) for item in value]
    if isinstance(value, dict):
        return {key: item if type(item) in _NUMBERS else scrub(item) for key, item in value.items()}
    return value


def _scrubbed(text: str) -> str:
    """Redacts a text, remembering short texts without a secret, because logs repeat paths, ids and
    reasons."""
    if text in _clean:
        return text
    found, count = redact(text)
    if not count and len(text) <= _CLEAN_CHARS:
        if len(_clean) >= _CLEAN_TEXTS:
            _clean.clear()
        _clean.add(text)
    return found


def _whole(data: bytes, span: tuple[int, int]) -> tuple[int, int]:
    """A place, extended so that it neither begins nor ends within a character."""
    start, end = span
    while start and data[start] & 0xC0 == 0x80:
        start -= 1
    while end < len(data) and data[end] & 0xC0 == 0x80:
        end += 1
    return start, end


def _without(data: bytes, spans: list[tuple[int, int]]) -> bytes:
    pieces: list[bytes] = []
    place = 0
    for start, end in spans:
        pieces += (data[place:start], MARK.encode())
        place = end
    return b"".join([*pieces, data[place:]])


def _again(data: bytes, spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """All places of the values that were found: a password may be echoed, and a token quoted."""
    values: dict[bytes, None] = {}
    for start, end in spans:
        value = data[start:end]
        if _AGAIN_BYTES <= len(value) <= _KEY_BYTES and FITS["known"](value):
            values[value] = None
            if len(values) == _AGAIN:
                break
    for value in values:
        place = data.find(value)
        while place >= 0:
            yield place, place + len(value)
            place = data.find(value, place + len(value))


def _spans(data: bytes) -> Iterator[tuple[int, int]]:
    """The places of secrets; they may overlap."""
    for match in rule(_forms()).finditer(data):
        if is_mixed(match.group(0)):
            yield match.span()
    lowered = data.lower()
    for number in _needed().matches(data):
        yield from _placed(data, *_places()[number])
    if b"://" in data:
        for match in rule(_URL).finditer(data):
            if _opens(match.group(1)):
                yield match.span(1)
    yield from named(data, lowered)
    yield from _bare(data)
    yield from password_spans(data)
    yield from handed(data)
    if b"PRIVATE KEY" in data or b"Static key" in data:
        yield from _keys(data)


def _bare(data: bytes) -> Iterator[tuple[int, int]]:
    """Keys that no name or place gives away, only their randomness."""
    for match in rule(_BARE).finditer(data):
        start, end = match.span()
        start = max(start, data.rfind(b"=", start, end - 20) + 1)
        if end - start >= 20 and is_bare(data[start:end]) and not _is_dump(data, start, end):
            yield start, end


def _is_dump(data: bytes, start: int, end: int) -> bool:
    """Whether this is a line of a picture, a certificate or a program, or a hash or an id that is
    named as one."""
    before = data[max(0, start - 90) : start]
    if rule(_IDS_BEFORE).search(before[-40:]):
        return True
    return end - start >= 32 and bool(
        rule(_DUMPED).search(before) or rule(_DUMP_GOES_ON).match(data[end : end + 60])
    )


def _opens(value: bytes) -> bool:
    """Whether this is the password in a URL: not a port and a path, and not a:b."""
    if b"/" in value and not is_random(value):
        return False
    if rule(rb"^[A-Z][A-Za-z]*(?i:token|pass(?:word)?|key|secret)$").search(value):
        return False  # placeholders in manuals: ApiToken, APIPASS
    return not is_placeholder(value) and not (len(value) < 4 and value.isalnum())


def _placed(data: bytes, pattern: bytes, fits: str) -> Iterator[tuple[int, int]]:
    compiled = rule(pattern)
    for match in compiled.finditer(data):
        for number in range(1, compiled.groups + 1):
            value = match.group(number)
            if not value or is_placeholder(value):
                continue
            if fits == "cookies":
                yield from _cookies(value, match.start(number))
            elif FITS[fits](value):
                start = match.start(number)
                yield start, start + len(value.rstrip())


def _cookies(value: bytes, offset: int) -> Iterator[tuple[int, int]]:
    """The values of a cookie header that look like keys, one by one."""
    for match in rule(rb"[A-Za-z0-9_.-]+=([^;\s,]+)").finditer(value):
        if FITS["random"](match.group(1)) and not is_placeholder(match.group(1)):
            yield offset + match.start(1), offset + match.end(1)


def _keys(data: bytes) -> Iterator[tuple[int, int]]:
    """Private keys, complete or without their end."""
    ends: list[int] | None = None
    place = 0
    for begin in rule(_KEY_BEGINS).finditer(data):
        if begin.start() < place:
            continue
        if ends is None:
            ends = [end.end() for end in rule(_KEY_ENDS).finditer(data)]
        start = begin.end()
        following = bisect_right(ends, start)
        if following < len(ends) and ends[following] - start <= _KEY_BYTES:
            place = ends[following]
            if not rule(rb"[A-Za-z0-9+/]{32}").search(data, start, place):
                continue  # only the two lines, as programs mention them
        else:
            place = rule(_KEY_BODY).match(data, start, start + _KEY_BYTES).end()
        if place > start:
            yield begin.start(), place


@cache
def _forms() -> bytes:
    """All vendors' formats as one pattern."""
    table: dict[str, list[str]] = rules("vendors")["forms"]
    return "|".join(form for forms in table.values() for form in forms).encode()


@cache
def _places() -> tuple[tuple[bytes, str], ...]:
    """The patterns of secrets in known places, and the kind of value that their groups must
    contain."""
    return tuple(
        (("(?i)" + place["pattern"]).encode(), place.get("value", "any"))
        for place in rules("places")["place"]
    )


@cache
def _needed() -> WordSets:
    """The words of which a text must contain one, for each of the places."""
    return WordSets([place["needs"] for place in rules("places")["place"]])
