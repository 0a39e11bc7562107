"""Secrets out of texts that are kept or sent on: checkpoints, notes, logs.

By shape, not by guess: what has the form of a known provider's key, what stands where a password
stands. RE2 over bytes, so the time is linear whatever the text is, and lone surrogates pass."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

import re2

MARK = "[redacted]"

_PASSES = 4  # what a first pass uncovers; one is enough for all but made-up texts
_KEY_BYTES = 20_000  # a private key is no longer: a BEGIN and an END further apart are two mentions

_PROVIDERS = rb"|".join(
    (
        rb"sk-(?:ant|proj|svcacct|admin|or|lf)-[A-Za-z0-9_-]{16,}",  # Anthropic, OpenAI, OpenRouter
        rb"\bsk-[A-Za-z0-9]{20,}",  # OpenAI's old form, DeepSeek and many that copy it
        rb"(?:gsk|hf|npm|r8)_[A-Za-z0-9]{30,}|xai-[A-Za-z0-9]{40,}|pplx-[A-Za-z0-9]{40,}",
        rb"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}",  # Stripe
        rb"AIza[A-Za-z0-9_-]{35,}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,}",  # Google
        rb"gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}|glpat-[A-Za-z0-9_-]{20,}",
        rb"xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{10,}",  # Slack
        rb"hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]{20,}",
        rb"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16,}",  # AWS
        rb"pypi-AgE[A-Za-z0-9_-]{20,}|dop_v1_[a-f0-9]{40,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
        rb"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",  # a signed web token
    )
)
_BEARER = (
    rb"(?i)\b(?:bearer|authorization\W{1,4}(?:basic|token|key))[ \t]+([A-Za-z0-9._~+/=-]{12,})"
)
_URL = rb"[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@\"'<>]*:([^\s/\"'<>]+)@"
_WORD = (
    rb"secret(?:[_.-]?access)?(?:[_.-]?key)?|token|passw(?:or)?d|passphrase|passwd|pwd"
    rb"|api[_.-]?key|private[_.-]?key|access[_.-]?key|encryption[_.-]?key|auth[_.-]?key"
)
_QUOTED = (  # to the closing quote, or to the end of the line if there is none
    rb'"((?:[^"\\\n]|\\[^\n])+)|\'((?:[^\'\\\n]|\\[^\n])+)'
    rb'|\\"((?:[^"\\\n]|\\[^"\n])+)'  # JSON inside JSON
)
_NAMED = (
    rb"(?im)(" + _WORD + rb")([A-Za-z0-9_.-]{0,40})"
    rb"(?:\\?[\"'])?(?:"
    rb"[ \t]*(?::|=|:=|=>)[ \t]*(?:" + _QUOTED + rb")"  # in code or JSON: "password": "…"
    rb"|=([^\s\"'`]+)"  # in a shell or an .env: PASSWORD=…
    rb"|[ \t]*[:=][ \t]+([^\s\"'`]+)[ \t\r]*$"  # in YAML, .ini: password: …
    rb")"
)
_SHELL, _LINE = 6, 7  # groups
_OPTION = rb"(?i)-[A-Za-z0-9-]{0,40}(?:" + _WORD + rb")[ \t]+([^\s\"'`-][^\s\"'`]+)"
_KEY_BEGINS = rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_KEY_ENDS = rb"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_KEY_BODY = (
    rb"(?:(?:\s|\\[nr]){0,4}[+> |-]{0,4}"
    rb"(?:[A-Za-z0-9+/=]{16,}|[A-Za-z-]{2,20}: [^\n\\]{1,200}|[A-Za-z0-9+/]{1,15}={1,2}))*"
)

_NOT_SECRET = frozenset(
    b"true false yes no none null nil undefined str string bytes required optional missing empty "
    b"invalid expired unset hidden masked redacted changeme example".split()
)
_OF_IT = frozenset(  # what follows the word where the value is something about the secret
    b"count counts limit limits max min budget usage used window type name names url uri file "
    b"files path dir ttl expiry expires expired length len size policy field hint format kind "
    b"status error manager provider store id".split()
)


def _compiled(pattern: bytes) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    return re2.compile(pattern, options=options)


_RULES: dict[str, Any] = {}


def _rule(name: str, pattern: bytes) -> Any:
    """Compiled when it is first needed."""
    if name not in _RULES:
        _RULES[name] = _compiled(pattern)
    return _RULES[name]


def redact(text: str) -> tuple[str, int]:
    """The text with each secret replaced by a mark, and how many there were. Twice is as once."""
    data = text.encode("utf-8", "surrogatepass")
    found = 0
    for _ in range(_PASSES):
        spans = _merged(sorted(_spans(data)))
        if not spans:
            break
        found += len(spans)
        data = _without(data, spans)
    return (data.decode("utf-8", "surrogatepass"), found) if found else (text, 0)


def _without(data: bytes, spans: list[tuple[int, int]]) -> bytes:
    pieces: list[bytes] = []
    place = 0
    for start, end in spans:
        pieces += (data[place:start], MARK.encode())
        place = end
    return b"".join([*pieces, data[place:]])


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in spans:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _spans(data: bytes) -> Iterator[tuple[int, int]]:
    """Where secrets stand; they may overlap."""
    for match in _rule("providers", _PROVIDERS).finditer(data):
        if _is_random(match.group(0)):
            yield match.span()
    for match in _rule("bearer", _BEARER).finditer(data):
        if _is_random(match.group(1)):
            yield match.span(1)
    for match in _rule("url", _URL).finditer(data):
        if not _is_placeholder(match.group(1)):
            yield match.span(1)
    yield from _named(data)
    yield from _keys(data)


def _named(data: bytes) -> Iterator[tuple[int, int]]:
    """Values whose name says that they are secret."""
    for match in _rule("named", _NAMED).finditer(data):
        word, rest = match.group(1), match.group(2)
        group = next(n for n in range(3, _LINE + 1) if match.start(n) >= 0)
        start, end = match.span(group)
        value = match.group(group)
        if group == _SHELL and (more := _rule("query", rb"&[A-Za-z0-9_.-]+=").search(value)):
            end = start + more.start()  # the next field of an address
            value = data[start:end]
        if not _names_it(rest) or _is_placeholder(value) or _is_about(word.lower(), value):
            continue
        if group == _SHELL and word.islower() and _is_code(value):
            continue
        if group == _LINE and not _looks_chosen(value):
            continue
        yield start, end
    for match in _rule("option", _OPTION).finditer(data):
        value = match.group(1)
        if _looks_chosen(value) and not _is_placeholder(value):
            yield match.span(1)


def _is_about(word: bytes, value: bytes) -> bool:
    """So many tokens; the working folder that shells call PWD; `password=password` in a call."""
    if value.rstrip(b",;)").lower() == word:
        return True
    if word == b"token":
        return value.rstrip(b",;.").isdigit()
    return word == b"pwd" and value[:1] in (b"/", b"~")


def _names_it(rest: bytes) -> bool:
    """Whether a name that goes on like this still names the secret: not tokens, tokenizer,
    token_limit."""
    if rest in (b"", b"."):
        return True
    parts = rest.lower().replace(b"-", b"_").replace(b".", b"_").split(b"_")
    if _OF_IT & set(parts):
        return False
    return not rest[:1].islower() and rest.lower() not in _OF_IT


def _is_placeholder(value: bytes) -> bool:
    """A variable, a blank to be filled in, or what stands where a secret was."""
    bare = value.rstrip(b",;)").lower()
    return (
        value == MARK.encode()
        or not bare
        or value.startswith((b"$", b"<", b"{", b"%"))
        or bare in _NOT_SECRET
        or (len(bare) > 2 and not bare.strip(b"*x.-_"))
    )


def _is_code(value: bytes) -> bool:
    """An expression: a call, an index, an attribute."""
    head = value.partition(b"(")[0].partition(b"[")[0].rstrip(b",;)")
    if head == value.rstrip(b",;)"):
        return b"." in head and head.replace(b".", b"").replace(b"_", b"").isalpha()
    return head.replace(b".", b"").replace(b"_", b"").isalnum() and head[:1].isalpha()


def _looks_chosen(value: bytes) -> bool:
    """Not a word of a sentence, nor code: with digits or signs in it."""
    plain = value.rstrip(b",;.:!?)")
    return not _is_code(value) and not plain.replace(b"-", b"").replace(b"_", b"").isalpha()


def _is_random(key: bytes) -> bool:
    """With a digit, as keys have; names and words joined by dashes have none."""
    return any(48 <= byte <= 57 for byte in key) or (len(key) > 30 and not key.islower())


def _keys(data: bytes) -> Iterator[tuple[int, int]]:
    """Private keys, whole or without their end."""
    ends: list[int] | None = None
    place = 0
    for begin in _rule("begins", _KEY_BEGINS).finditer(data):
        if begin.start() < place:
            continue
        if ends is None:
            ends = [end.end() for end in _rule("ends", _KEY_ENDS).finditer(data)]
        start = begin.end()
        following = bisect_right(ends, start)
        if following < len(ends) and ends[following] - start <= _KEY_BYTES:
            place = ends[following]
        else:
            place = _rule("body", _KEY_BODY).match(data, start, start + _KEY_BYTES).end()
        if place > start:
            yield begin.start(), place
