"""Values whose names say that they are secret: in code, JSON, YAML, .env files, headers and
options."""

from collections.abc import Iterator
from functools import lru_cache

from segue.core.secrets.rules import rule
from segue.core.secrets.values import (
    MIN_KEY_BYTES,
    is_chosen,
    is_code,
    is_hex,
    is_lowly,
    is_opaque,
    is_placeholder,
    is_random,
    is_salt,
    is_scrambled,
    is_sentence,
)

_STRONG = (  # a secret, whatever its value looks like
    rb"(?:api|private|access|encryption|auth|secret|signing|account|preshared)[_.-]?key|pass[_-]?phrase"
    rb"|passw(?:or)?d|passwd|passcode|pwd?|pass|psk|secret|token|credentials?|creds|mnemonic"
)
_WEAK = rb"key|auth|bearer|salt|certificate|pepper"  # a secret only if its value looks like a key
_WORD = rb"(?:" + _STRONG + rb"|" + _WEAK + rb")"
_QUOTED = (  # up to the closing quote, or the end of the line if there is none
    rb'"((?:[^"\\\n]|\\[^\n])+)|\'((?:[^\'\\\n]|\\[^\n])+)|`([^`\n$]+)`'
    rb'|\\"((?:[^"\\\n]|\\[^"\n])+)'  # JSON inside JSON
)
_NAMED = (
    rb"(?i)(" + _WORD + rb"[A-Za-z0-9_.-]{0,60})"
    rb"(?:\\?[\"'])?\]?(?:"
    rb"[ \t]*(?::\*{2}|\*{2}:|:|=|:=|=>|\?=)[ \t]*[bruf]{0,2}(?:"
    + _QUOTED
    + rb")"  # code, JSON: "password": "…"
    rb"|=([^\s\"'`;&>][^\s\"'`;&]*)"  # a shell, an .env: PASSWORD=…
    rb"|[ \t]*[:=][ \t]+([^\s\"'`;&]+)"  # YAML, .ini, a header: password: …
    rb"|>([^<>\s]+)</"  # <password>…</password>
    rb"|[ \t]+(?:is|was)[ \t]+[\"'`]?([^\s\"'`]+)"  # the password is …
    rb")"
)
_PAIRED = (  # define('PASSWORD', '…'), but not {"user": "token", "password": …
    rb"(?i)(" + _WORD + rb"[A-Za-z0-9_.-]{0,60})[\"'],[ \t]*"
    rb"[\"']([^\"'\n]+)[\"'][ \t]*(?:[^ \t:=]|$)"
)
_QUOTES, _SHELL, _LINE, _ELEMENT, _PROSE = (2, 3, 4, 5), 6, 7, 8, 9  # groups of `_NAMED`
_ARGUMENT = 0  # the one of `_PAIRED`
_OPTION = (
    rb"(?i)(?:^|[\s\"'(])--?([A-Za-z0-9.-]{0,40}" + _WORD + rb"[A-Za-z0-9-]{0,20})"
    rb"[ \t]+(?:\"([^\"\n]+)\"|'([^'\n]+)'|([^\s\"'`-][^\s\"'`]+))"
)
SIGNS = (  # what a line with a strong name contains, whatever its value looks like
    rf"(?i:{_STRONG.decode()})[A-Za-z0-9_.-]{{0,60}}"
    r"""(?:\\?["'`]|\]|[ \t]*[:=>]|[ \t]+(?:is|was)[ \t]|[ \t]+["'A-Za-z0-9])"""
)
_TRIGGERS = (
    b"pass pw psk secret token cred mnemonic key auth bearer salt certificate pepper".split()
)

_STILL_IT = frozenset(  # what may follow the word without changing its meaning
    b"base data value string plain text cleartext prod production dev staging live old new".split()
)
_NOT_IT = frozenset(  # before "key", "token" or "auth": something else
    b"public pub primary foreign cache partition sort object bucket idempotency sub group map hash "
    b"dict json row col hot registry sequence unique composite i18n locale lookup query dedupe "
    b"react next eos bos pad unk mask cls sep stop page pagination continuation starting previous "
    b"last sync cursor resume result field property prop max min pre lock change".split()
)
_NOT_ALWAYS_IT = frozenset(b"request action client".split())
_NEEDS_SIGNS = (b"token", b"credential", b"credentials", b"creds")  # words with other meanings, too
_INNER_BYTES = 4_000  # of JSON inside JSON
_MIN_BYTES = 4  # an access key of one letter is a keyboard shortcut


def named(data: bytes, lowered: bytes) -> Iterator[tuple[int, int]]:
    """The places of the values whose names say that they are secret. `lowered`: `data` in lower
    case."""
    if not any(word in lowered for word in _TRIGGERS):
        return
    for match in rule(_NAMED).finditer(data):
        group = match.lastindex
        start, end = match.span(group)
        if group in (_SHELL, _LINE):
            end = _ended(data, end)
        value = data[start:end]
        name = _beginning(data, match.start(1)) + match.group(1)
        if b'\\"' in value[:_INNER_BYTES] and value[:1] in (b"{", b"["):  # JSON in JSON
            inner = value[:_INNER_BYTES]
            yield from ((start + a, start + b) for a, b in named(inner, inner.lower()))
            continue
        if _is_in_a_path(data, match.end(1) - len(name), group):
            continue
        if _is_secret(name, value, group, data[end : end + 1]):
            yield start, end
        elif group == _LINE and (second := _after_scheme(data, name, value, end)):
            yield second
    for match in rule(_PAIRED).finditer(data):
        start, end = match.span(2)
        name = _beginning(data, match.start(1)) + match.group(1)
        if _is_in_a_path(data, match.end(1) - len(name), _ARGUMENT):
            continue
        if _is_secret(name, match.group(2), _ARGUMENT, data[end : end + 1]):
            yield start, end
    if b"-" in data:
        for match in rule(_OPTION).finditer(data):
            group = match.lastindex
            value = match.group(group)
            before, word, rest = _parted(match.group(1))
            glued = word.lower() == b"pass" and not rest  # -srcstorepass
            if not (glued or _names_it(before, word, rest, value)) or is_placeholder(value):
                continue
            if _is_weak(word):
                fits = is_random(value)
            else:
                quoted = (
                    (group < 4 or value.count(b"-") > 2)
                    and word.lower().startswith(b"pass")
                    and not rest
                )
                fits = quoted or is_chosen(value) or is_scrambled(value) or is_lowly(value)
            if fits and not is_sentence(value):
                yield match.span(group)


def _after_scheme(data: bytes, name: bytes, value: bytes, end: int) -> tuple[int, int] | None:
    """The key after a word that describes it: `X-Auth-Token: api-key 0f3…`."""
    word = value.rstrip(b":")
    if not word.replace(b"-", b"").replace(b"_", b"").isalpha() or len(word) > 12:
        return None
    match = rule(rb"[ \t]+([A-Za-z0-9._~+/=-]{20,})(?:[\s\"'\\,;]|$)").match(data, end)
    before, key, rest = _parted(name)
    if match is None or _is_weak(key) or not _names_it(before, key, rest, match.group(1)):
        return None
    return match.span(1) if is_opaque(match.group(1)) else None


def _is_secret(name: bytes, value: bytes, group: int, after: bytes) -> bool:
    before, word, rest = _parted(name)
    if _is_weak(word) and len(value) < MIN_KEY_BYTES:
        return False
    if is_placeholder(value) or _is_about(name, word, value):
        return False
    if not _names_it(before, word, rest, value):
        return False
    if _is_weak(word):
        if group == _PROSE or (not before and is_hex(value)):
            return False
        if name.isupper() and any(is_opaque(part) for part in rule(rb"[:|]").split(value)):
            return True
        return (is_random(value) and not is_code(value)) or (
            word.lower() != b"certificate" and group != _PROSE and is_salt(value)
        )
    lower = word.lower()
    if group == _SHELL:
        if lower == b"token" and not word.isupper() and not is_chosen(value):
            return False
        return word.isupper() or not (is_code(value) or _is_argument(value))
    if group == _ELEMENT:
        return not is_code(value) and len(value) >= _MIN_BYTES
    if group == _LINE:
        ends = after[:1] in b"\n\r\"'`"
        if value[-1:] in (b",", b";") or not ends:
            return is_random(value, 12) and not is_code(value)
        return is_chosen(value) and len(value) >= _MIN_BYTES and not _is_number(value)
    if group == _PROSE:
        return is_random(value, 10) and is_chosen(value)
    if group == _ARGUMENT and b" " in value:
        return False
    if group == _ARGUMENT or lower in _NEEDS_SIGNS:
        words = len(value.split()) > 2 or is_sentence(value)
        return is_chosen(value) and not words and not _is_path(value)
    if lower.endswith(b"key") and (len(value) < _MIN_BYTES or _is_word(value)):
        return False
    if group in _QUOTES and value[:1] in (b",", b")", b"]", b"}"):
        return False  # the quote was a closing one
    if lower == b"passphrase" and name.isupper():
        return True
    return not is_sentence(value) and not _is_path(value)


@lru_cache(256)
def _parted(name: bytes) -> tuple[bytes, bytes, bytes]:
    """A name split around its last word for a secret, preferring a strong one."""
    words = list(rule(rb"(?i)" + _STRONG).finditer(name)) or list(
        rule(rb"(?i)" + _WEAK).finditer(name)
    )
    start, end = words[-1].span()
    start += name[start : start + 1] == b"_"
    return name[:start], name[start:end], name[end:]


def _is_weak(word: bytes) -> bool:
    return word.lower() in (b"key", b"auth", b"bearer", b"salt", b"certificate", b"pepper")


def _ended(data: bytes, end: int) -> int:
    """Where an unquoted value ends: it may contain & and ;, but not the next field of a URL or a
    connection string."""
    while data[end : end + 1] in (b"&", b";"):
        more = rule(rb"[;&][^\s\"'`;&=]+").match(data, end)
        if more is None or data[more.end() : more.end() + 1] == b"=":
            break
        end = more.end()
    return end


def _beginning(data: bytes, place: int) -> bytes:
    """The part of a name before `place`."""
    begun = data[max(0, place - 40) : place]
    return begun[len(begun.rstrip(_NAME)) :]


_NAME = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."


def _names_it(before: bytes, word: bytes, rest: bytes, value: bytes) -> bool:
    """Whether this names a secret: not tokens, tokenizer, token_limit, public_key or compass. If
    the name continues after the word, its value must look like a key."""
    lower = word.lower()
    inside = len(word) <= 4 and before[-1:].isalpha() and not _begins_a_part(before, word)
    if inside and (is_hex(value) or not (is_random(value) or _is_variable(before, word, value))):
        return False
    if lower.endswith((b"key", b"token", b"auth")):
        parts = set(_parts(before))
        if parts & _NOT_IT or (parts & _NOT_ALWAYS_IT and (is_hex(value) or not is_random(value))):
            return False
    if not rest.strip(b"_.-0123456789"):
        return True
    if rest[:1].islower() or rest[:1] == b".":
        return False
    if set(_parts(rest)) <= _STILL_IT:
        return True
    if rest.strip(b"_-").lower() == b"hash" and lower.startswith(b"pass"):
        return is_random(value)
    if rest.strip(b"_-").lower() == b"id" and (
        (len(lower) > 3 and lower.endswith(b"key")) or lower == b"secret"
    ):
        return is_random(value)
    joined = word.isupper() and rest.upper() == rest and rest[:1] in b"_-"
    return joined and is_random(value) and not is_hex(value)


def _is_variable(before: bytes, word: bytes, value: bytes) -> bool:
    """Whether this is a variable for a password: SSHPASS=…, but not BYPASS=1."""
    return (before + word).isupper() and is_chosen(value) and not value.isalnum()


def _begins_a_part(before: bytes, word: bytes) -> bool:
    """Whether the word starts a part of the name: dbPass, but not bypass."""
    return word[:1].isupper() and before[-1:].islower()


def _parts(name: bytes) -> list[bytes]:
    """The words of a name, however they are joined."""
    return [part.lower() for part in rule(rb"[A-Z]+(?:[^a-z]|$)|[A-Z]?[a-z]+").findall(name)] + (
        name.lower().replace(b"-", b"_").replace(b".", b"_").strip(b"_").split(b"_")
    )


def _is_about(name: bytes, word: bytes, value: bytes) -> bool:
    """Whether the value is about something else: a number of tokens; the working folder, which
    shells call PWD; `password=password` in a call."""
    bare = value.strip(b",;)@. ").lower()
    if bare in (name.lower(), word.lower()) or _is_type(value, word):
        return True
    if b"-" in bare and _joined(name) in _joined(bare):
        return True  # METADATA_TOKEN = "x-metadata-token"
    if word.lower() == b"token":
        return _is_number(bare)
    return word.lower() == b"pwd" and value[:1] in (b"/", b"~")


def _joined(name: bytes) -> bytes:
    return name.lower().replace(b"-", b"").replace(b"_", b"")


def _is_type(value: bytes, word: bytes) -> bool:
    """Whether the value is a class or a label with such a name: _RSAPrivateKey,
    challengePassword."""
    end = word.replace(b"_", b"").replace(b"-", b"")[-3:].lower()
    return (
        value.strip(b"_").isalpha()
        and value.lower().endswith(end)
        and not (value.islower() or value.isupper())
    )


def _is_in_a_path(data: bytes, start: int, group: int) -> bool:
    """Whether the name is the end of a type's path (AWS::ApiGateway::ApiKey) or of a file's
    ("kadmin/passwd", …)."""
    before = data[max(0, start - 2) : start]
    return (before == b"::" and data[start : start + 1].isupper()) or (
        group == _ARGUMENT and before[-1:] == b"/"
    )


def _is_argument(value: bytes) -> bool:
    """Whether the value is a name passed in a call: `password=user_password,`."""
    bare = value.rstrip(b",;)]}:")
    return bare != value and bare.replace(b"_", b"").isalnum() and not bare[:1].isdigit()


def _is_word(value: bytes) -> bool:
    """Whether the value is a plain word for programs that need no key: `apiKey: "ollama"`."""
    return len(value) < 12 and value.islower() and value.replace(b"-", b"").isalpha()


def _is_number(value: bytes) -> bool:
    return not value.strip(b"+-.,;_0123456789%")


def _is_path(value: bytes) -> bool:
    return value.startswith((b"/", b"./", b"../", b"~/", b"http://", b"https://")) and not (
        is_random(value)
    )
