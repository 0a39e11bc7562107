"""Passwords without a name, an option or a vendor's format.

Found in three ways: a word that looks like a chosen password, on a line about a login; a word that
can hardly be anything else, anywhere; and a table column called password.
"""

from collections.abc import Iterator

from segue.core.secrets.rules import rule
from segue.core.secrets.values import is_code, is_hex, is_placeholder

LINE = (
    r"passw|passphrase|\bpass(?:[ \t]*[:=]|[ \t]+[^\s])|\bpw\b|\bpwd\b|_pwd\b|\bpsk\b"
    r"|\bcred(?:ential)?s?\b|\blog(?:ged)?[ -]?in\b|identify|community|wi-?fi|ssid|net user"
    r"|\bsecrets?\b|\bconnect\(|credential\(|\bkinit\b|\badmin\b|\bauth[\"']?[ \t]*[:=]"
    r"|[ \t]-u[ \t]|[ \t]--?user(?:name)?[ \t=]|\buser(?:name)?[\"']?[ \t]*[:=]|authenticat"
    r"|sign[ -]?in\b|\bregister[ \t]*=>|\bconnect to\b|\bopenssl\b|<<<"
)
"""What a line about a login contains, in any case."""
STRONG = (
    r"[A-Za-z][A-Za-z0-9_.-]*[0-9][A-Za-z0-9_.-]*[!#$%^&*]"
    r"|[A-Za-z][!#$%^&*][A-Za-z0-9]*[0-9]"
)
"""What a line with a strong password contains."""
LEET = r"[a-z][013457]+[a-z]+[013457]|[\"'`][A-Za-z!-]*[a-z][013457]+[A-Za-z][A-Za-z0-9!-]+[\"'`]"
"""What a line contains with a word in which digits replace letters."""
TABLES = (b",password", b',"password', b"| password", b"\tpassword")
"""What a text with a table of passwords contains."""

_MAX_LINE_BYTES = 1_000  # a longer line was written by a program
_MAX_ROWS = 500

_LINES = rb"(?i)[^\n]*(?:" + LINE.encode() + rb")[^\n]*"
_WORDS = (
    rb"(?:^|[\s\"'`>|:=,/(}])"
    rb"([A-Za-z!@#$%^&*_.+~?-]*[0-9][A-Za-z0-9!@#$%^&*_.+~?-]{0,40})"
)
_STRONG = (
    rb"(?:^|[\s\"'`|:])"
    rb"([A-Za-z0-9][A-Za-z0-9_.-]{0,30}[!#$%^&*][A-Za-z0-9!#$%^&*_.-]{0,30})"
    rb"(?:$|[\s\"'`|,;)])"
)
_TWICE = (  # two digits that replace letters in one word: k33p4ss
    rb"(?:^|[\s\"'`>|:=,(}])"
    rb"((?:[A-Za-z]+-)?[A-Za-z]{0,8}[a-z][013457]{1,2}[a-z]{1,8}[013457]{1,2}"
    rb"[A-Za-z][A-Za-z0-9!-]{1,20})"
)
_QUOTED = (  # one of them, in quotes: "t1gerPw"
    rb"[\"'`]([A-Za-z!-]{0,20}(?:[a-z][013457]{1,2}[a-z]|[A-Z][013457][a-z]{2})"
    rb"[A-Za-z0-9!-]{1,20})[\"'`]"
)
_AFTER = b" \t\r\n\"'`<|,;:)}]&"  # a word may end before any of these
_TERMS = (  # technical terms that contain digits
    rb"(?i)base(?:16|32|58|62|64)|sha-?[0-9]{1,3}|md[245]|utf-?[0-9]+(?:mb[34])?|o?auth[12]|x-?509"
    rb"|x86|x64|amd64|arm64|aarch64|ed25519|e?c?25519|secp[0-9]+[kr]1|ecdsa|[ar]sa[0-9]*"
    rb"|aes-?[0-9]+|[hrep]s(?:256|384|512)|pbkdf2|argon2i?d?|pkcs#?[0-9]+|https?[23]?|ipv[46]"
    rb"|i18n|l10n|k8s|a11y|e2e|p2p|b2[bc]|h26[45]|mp[34]|win(?:32|64)|u?int(?:8|16|32|64)"
    rb"|float(?:32|64)|v[0-9]+(?:alpha|beta|rc)?[0-9]*|\bs3|\bafs3\b|\bec2\b|r53|log4j|web3"
    rb"|python[23]?|py[23][0-9]*|es[0-9]+|ios[0-9]+|1password|auth0|neo4j|db2|\bd3\b|2fa|u2f"
    rb"|fido2|wpa[23]|wep|80211|\bcp[0-9]+\b|iso-?[0-9-]+|rfc-?[0-9]+|gpt-?[0-9][a-z]?|claude"
    rb"|\b[0-9]+(?:st|nd|rd|th|px|ms|kb|mb|gb|k|m|s|d|h)\b|(?-i:\b[a-z]+-[a-z]+-[0-9][a-z]?\b)"
)
_MADE = (
    rb"[a-z][0134579][a-z]|[A-Z][0134579][a-z]+[0-9!]|[a-z][0134579][A-Z]|[A-Z][0134579][a-z]{2}"
    rb"|^[A-Z][0134579][a-z]-|[a-z]{3}[0134579]-[a-z]"
)
_PHRASE = rb"^(?:[A-Z][a-z]{2,}|[a-z]{3,}-[A-Z][a-z]{2,})(?:-?[A-Z][a-z]{2,})*-?[0-9]{1,4}$"
_CHOSEN = rb"^[A-Z][a-z]{2,}[-_.+#%!][0-9]{2,5}[a-z!]?$"  # a word, a sign, a number
_PASSWORD_LINE = rb"(?i)password|passphrase|\bpw\b|wi-?fi"
_NAMES = (  # step-12, Windows10, ISO-8859-1, 2024-01-02, v2-rc1, b2 and so on
    rb"(?i)^[a-z]+[-_]?[0-9]{1,4}$|^[0-9]|^[a-z]?[0-9.-]*$|^[a-z]{1,3}[0-9]+"
    rb"|-[a-z]{0,2}[0-9]{1,3}[a-z]?$|^[A-Z0-9-]+$|^[a-z0-9]+(?:-[a-z0-9]+)+$"
)
_EXPRESSION = (  # %s, $1, a#b, 2*n, &amp;, 22-Jul-2001, #L12
    rb"(?i)%[0-9.]*[a-z]|%[0-9a-f]{2}|^[0-9]+\*|^[0-9]{1,2}-[a-z]{3}-|\$[0-9]?(?:\.|$)|pkcs#"
    rb"|[a-z]#[a-z]|\$[a-z_{]+$|^[a-z_]+[$*#!&][0-9]+$|&[a-z]+;|\*\*|&&|#[0-9]+$|#L[0-9]"
)
_COLUMNS = (b"password", b"passwd", b"secret", b"login_password", b"pwd")
_HEADS = (
    rb"(?im)^[a-z0-9_ \"\t,;|]*?([,;|\t])[ \"]*(?:"
    + b"|".join(_COLUMNS)
    + rb")[ \"]*(?:[,;|\t][a-z0-9_ \"\t,;|]*)?\r?$"
)
_OWN_ID = rb"^(?:segue/)?(?:run|task|[chw])-[0-9a-f]{8}$"  # segue's own ids, which commands need
_RULE = rb"^[-+|=: \t]+$"  # between the head of a table and its rows


def password_spans(data: bytes) -> Iterator[tuple[int, int]]:
    """The places of such passwords."""
    for line in rule(_LINES).finditer(data):
        text = line.group(0)
        if len(text) > _MAX_LINE_BYTES:
            continue
        for match in rule(_WORDS).finditer(text):
            if _is_made(match.group(1), text[match.end(1) : match.end(1) + 1], text):
                yield line.start() + match.start(1), line.start() + match.end(1)
    for match in rule(_STRONG).finditer(data):
        if _is_strong(match.group(1)):
            yield match.span(1)
    for match in rule(_TWICE).finditer(data):
        if _is_made(match.group(1), data[match.end(1) : match.end(1) + 1]):
            yield match.span(1)
    for match in rule(_QUOTED).finditer(data):
        word = match.group(1)
        if _is_listed(data, match.start(), match.end()):
            continue
        if rule(rb"[a-z0-9]{2}-?[A-Z]").search(word) and _is_made(word):
            yield match.span(1)
    yield from _columns(data)


def _is_made(word: bytes, after: bytes = b"", line: bytes = b"") -> bool:
    """Whether a word has digits among letters where no technical term has them, or consists of
    words and a number: S3cr3tRW, Tulip-Fields-9."""
    word = word.rstrip(b".?,!")
    if rule(_OWN_ID).search(word):
        return False
    if not 6 <= len(word) <= 40 or after not in _AFTER:
        return False
    if rule(_CHOSEN).search(word) and rule(_PASSWORD_LINE).search(line):
        return True
    if word.startswith(b"lib") or b"_" in word or b"." in word or b"@" in word[1:-1]:
        return False
    if word[:1] in b"$%&-#@+*~^":
        return False
    if is_hex(word) or is_placeholder(word) or is_code(word):
        return False
    rest = rule(_TERMS).sub(b"-", word)
    if not rule(rb"[A-Za-z].*[0-9]|[0-9].*[A-Za-z]").search(rest):
        return False
    if rule(_MADE).search(rest):
        return True
    if rule(_PHRASE).search(word) and rule(_PASSWORD_LINE).search(line):
        return True
    return len(word) >= 7 and not rule(_NAMES).search(rest)


def _is_listed(data: bytes, start: int, end: int) -> bool:
    """Whether there is one word per line, as in a list of names."""
    before = data[data.rfind(b"\n", 0, start) + 1 : start]
    return not before.strip() and data[end : end + 2] in (b",\n", b",\r")


def _is_strong(word: bytes) -> bool:
    """Whether a word has small and capital letters, digits and a symbol, and is not an expression
    in code."""
    if not 8 <= len(word) <= 40 or is_placeholder(word) or is_code(word):
        return False
    if rule(_EXPRESSION).search(word) or word.count(b".") > 1:
        return False
    return all(rule(kind).search(word) for kind in (rb"[a-z]", rb"[A-Z]", rb"[0-9]"))


def _columns(data: bytes) -> Iterator[tuple[int, int]]:
    """The places of the values in table columns called password, as browsers and databases export
    them."""
    for head in rule(_HEADS).finditer(data):
        sign = head.group(1)
        names = head.group(0).lower().split(sign)
        named = [n for n, name in enumerate(names) if name.strip(b' "\t\r') in _COLUMNS]
        place = head.end()
        for _ in range(_MAX_ROWS if named else 0):
            end = data.find(b"\n", place + 1)
            row = data[place + 1 : end if end >= 0 else len(data)]
            start, place = place + 1, place + 1 + len(row)
            if rule(_RULE).search(row):
                continue
            cells = row.split(sign)
            if not row or len(cells) != len(names):
                break
            cell = cells[named[0]]
            value = cell.strip(b' "\t\r')
            if len(value) >= 4 and not is_placeholder(value):
                start += sum(len(other) + 1 for other in cells[: named[0]]) + cell.find(value)
                yield start, start + len(value)
