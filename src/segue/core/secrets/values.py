"""What the value of a secret looks like, and what is written in its place in code and documents."""

from base64 import b64decode
from collections.abc import Callable

import re2

MARK = "[redacted]"
MIN_KEY_BYTES = 16  # a shorter value is recognised only by its name or place

_BLANKS = frozenset(  # what is written where a secret was, or will be
    b"true false yes no none null nil undefined str string bytes required optional missing empty "
    b"invalid expired unset hidden masked redacted changeme changeit example password passwd passw "
    b"pass pwd secret token test dummy default placeholder username user value prompt never always "
    b"data mypassword mysecret mytoken sample secretkey accesskey key apikey api_key foo bar "
    b"foobar basic bearer digest stdin void any number boolean 123 1234 12345 123456 admin "
    b"root".split()
)
_FILLED_IN_LATER = (
    *b"your my_ my- arn: example replace insert enter_ < { $ %( %s %d %r ... xxx *** [ (".split(),
    "…".encode(),
)
_NOT_ASCII = bytes(range(128, 256))


def is_placeholder(value: bytes) -> bool:
    """Whether this is a variable, a blank to be filled in, or a replacement for a secret."""
    bare = value.strip(b"\"'`,;)@. ").lower()
    return (
        MARK.encode() in value
        or not bare
        or bare in _BLANKS
        or value[:1] == b" "
        or not bare.strip(_NOT_ASCII)
        or (b"_" in bare and value.isupper() and value.replace(b"_", b"").isalpha())  # a variable
        or b"{}" in value
        or bare.startswith(_FILLED_IN_LATER)
        or (bare.startswith(b"%") and bare.endswith(b"%"))
        or (len(bare) > 2 and not bare.strip(b"*x.-_0?#:"))
        or (
            len(bare) < 20 and value.rstrip(b"\"'`,;) ").endswith((b"...", "…".encode()))
        )  # sk-ant-...
        or (bare.startswith(b"#") and is_hex(bare[1:]) and len(bare) in (4, 7, 9))  # a colour
    )


def is_code(value: bytes) -> bool:
    """Whether this is an expression: a call, an index, an attribute, a template."""
    bare = value.rstrip(b",;:)]}")
    if (
        b"://" in bare
        or b"${" in bare
        or b"{{" in bare
        or (bare[:1] in (b"!", b"&", b"*", b":") and not is_mixed(bare))
        or bare.startswith((b"self.", b"this."))
        or _GRAMMAR.search(bare)
    ):
        return True
    head = bare.partition(b"(")[0].partition(b"[")[0]
    if head == bare:
        plain = head.replace(b".", b"").replace(b"_", b"")
        named = plain.isalnum() and not any(part[:1].isdigit() for part in head.split(b"."))
        return b"." in head and (plain.isalpha() or (named and not is_random(head, 8)))
    plain = head.replace(b".", b"").replace(b"_", b"")
    return plain.isalnum() and not head[:1].isdigit()


_GRAMMAR = re2.compile(rb"^[0-9]?\*[A-Za-z(]|\\[sSdDwWb]\b|\[\^|\.\*")  # 1*tchar, \S+, [^@]*, .*


def is_chosen(value: bytes) -> bool:
    """Whether this contains digits or symbols, and is neither a word of a sentence nor code."""
    plain = value.rstrip(b",;.:!?)]}")
    return not is_code(value) and not plain.replace(b"-", b"").replace(b"_", b"").isalpha()


def is_scrambled(value: bytes) -> bool:
    """Whether this is only letters, in mixed case without order: not a word or a name in code."""
    if len(value) < 10 or not value.isalpha():
        return False
    return _mixture(value)[0] * 5 >= len(value) and _in_words(value) * 4 < len(value) * 3


def is_told(value: bytes) -> bool:
    """Whether this is a password as people write it: letters with digits or symbols, and not a
    technical term."""
    bare = value.rstrip(b",;.:?)]}\"'`").lower()
    if len(bare) < 5 or is_code(value) or is_placeholder(value) or _is_term(bare):
        return False
    if any(byte in b"(){}[]<>|\\/\"'`=" for byte in bare) or bare.startswith((b"-", b"@", b"#")):
        return is_random(value)
    if b"_" in bare and value.islower() and bare.replace(b"_", b"").isalnum():
        return False  # a name in code
    letters = any(97 <= byte <= 122 for byte in bare)
    digits = any(48 <= byte <= 57 for byte in bare)
    return letters and (digits or any(byte in b"!@#$%^&*+~" for byte in bare))


def is_bare(value: bytes) -> bool:
    """Whether this is a key that nothing around it gives away: long, and too mixed for a name, path
    or id."""
    if is_known_id(value) or value.startswith(_PUBLIC):
        return False
    pieces = _PARTS.split(value)
    if max(map(len, pieces)) < 16 and len(pieces) > 3:
        return False
    if any(len(piece) >= 20 and _is_noise(piece) for piece in pieces):
        return True
    if any(piece.islower() and piece.isalpha() and len(piece) > 3 for piece in pieces):
        return False  # a path
    whole = value.replace(b"/", b"").replace(b"+", b"").rstrip(b"=")
    return len(value) - len(whole) > 0 and len(whole) >= 34 and _is_noise(whole)


def _is_noise(piece: bytes) -> bool:
    if len(piece) > _MAX_NOISE_BYTES or is_hex(piece.removeprefix(b"0x")):
        return False
    changes, digits, letters = _mixture(piece)
    size = len(piece)
    if not letters or _in_words(piece) * 2 > size:
        return False
    if piece.islower() or piece.isupper():
        return size >= 24 and digits >= 3 and changes * 4 >= size
    if not digits:
        return size >= 24 and changes * 6 >= size
    return changes * 4 >= size and not _is_text(piece)


def _is_text(piece: bytes) -> bool:
    """Whether this is encoded text: base64 of something readable."""
    try:
        text = b64decode(piece[: len(piece) // 4 * 4])
    except ValueError:
        return False
    return b":" not in text and all(32 <= byte < 127 or byte in b"\r\n\t" for byte in text)


def _in_words(value: bytes) -> int:
    """How many letters belong to possible words, which have at least three small letters in a
    row."""
    return sum(map(len, _RUN.findall(value)))


_RUN = re2.compile(rb"[A-Z]?[a-z]{3,}")
_PARTS = re2.compile(rb"[-_.=:/+]+")
_PUBLIC = (b"AAAAB3Nza", b"AAAAC3Nza", b"AAAAE2Vj", b"AAAAG")  # ssh keys that are not secret
_MAX_NOISE_BYTES = 200  # anything longer is a picture or a program


def _is_term(value: bytes) -> bool:
    """Whether this is a technical term with a digit: base64, sha256, oauth2, utf-8, v2."""
    return bool(_TERM.match(value)) or any(word in value for word in _WORDS_FOR_IT)


_WORDS_FOR_IT = (b"password", b"passwd", b"token", b"secret", b"apikey", b"api_key", b"api-key")
_TERM = re2.compile(
    rb"(?:base(?:16|32|58|62|64)\w*|sha-?[0-9]+|md[245]|utf-?(?:8|16|32)\w*|oauth-?[12]\w*|x\.?509\w*"
    rb"|e[dc]-?[0-9]+|ecdsa\w*|rsa-?[0-9]*|[ar]es-?[0-9]+\w*|[hrep]s(?:256|384|512)|pbkdf2\w*|argon2\w*"
    rb"|bcrypt\w*|pkcs[#-]?[0-9]+|https?2?|ipv[46]|v?[0-9]+(?:\.[0-9a-z*]+)*|[0-9]+[a-z]{1,7}|[a-z][0-9]{0,2}"
    rb"|[a-z]+-?v[0-9](?:\.[0-9])*|es20[0-9][0-9]|[a-z]+[0-9]?@[0-9].*|rfc-?[0-9]+|[a-z]{2,6}-[0-9]{1,6}"
    rb"|(?:str|int|uint|arg|param|line|step|col|row|case|type|test|key|id|num|float|level|part|chapter|version)"
    rb"[-_]?[0-9]+\w*|web3|i18n|l10n|k8s|log4j|python[23.]*|cp[0-9]+|gpt-?[0-9].*|claude-.*|o[1-9](?:-.*)?)$"
)


def is_random(value: bytes, least: int = MIN_KEY_BYTES) -> bool:
    """Whether this is long and mixed like a key: with a digit, or with letters in mixed case
    without order. Words and numbers joined by dashes, dots and slashes are not."""
    if len(value) < least or any(byte in b",(){}[]<>|\\ \"'" for byte in value):
        return False
    changes, digits, letters = _mixture(value)
    if digits and letters and len(value) >= 32 and is_hex(value):
        return True
    if not letters or (not digits and (len(value) <= 30 or value.islower() or value.isupper())):
        return False
    return changes * 5 > min(len(value), 200)


def is_opaque(value: bytes) -> bool:
    """Whether nobody chose this: random characters, or at least 20 hexadecimal digits."""
    if any(row in value.lower() for row in _ROWS):
        return False
    if is_hex(value):
        bare = value.replace(b"-", b"").lower()
        return len(bare) >= 20 and bare.strip(b"0123456789") != b"" and bare.strip(b"abcdef") != b""
    return is_random(value) and not is_code(value) and not is_known_id(value)


_ROWS = (b"0123456789", b"abcdefgh")  # an alphabet


def is_lowly(value: bytes) -> bool:
    """Whether this is small letters and digits in two parts, like tokens for joining a cluster:
    0k3x5v.a1b2c3…"""
    return bool(_LOWLY.match(value)) and sum(48 <= byte <= 57 for byte in value) > 2


_LOWLY = re2.compile(rb"[a-z0-9]{6,}\.[a-z0-9]{12,}$")


def is_salt(value: bytes) -> bool:
    """Whether this looks like a salt that a program made of all possible characters: long, without
    a blank."""
    signs = sum(byte in b"!#$%&()*+,-./:;<=>?@[]^_{|}~" for byte in value)
    return (
        len(value) >= 32
        and b" " not in value
        and signs >= 6
        and _mixture(value)[1] > 1
        and not is_code(value)
    )


def is_password(value: bytes) -> bool:
    """Whether this is a password as people are told to choose them: small and capital letters,
    digits and more."""
    kinds = (any(byte in kind for byte in value) for kind in (_SMALL, _CAPITAL, _DIGITS))
    more = not value.isalnum() or is_random(value, 8)
    return more and all(kinds) and not is_code(value) and not is_placeholder(value)


_SMALL, _CAPITAL, _DIGITS = (
    b"abcdefghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"0123456789",
)  # fmt: skip


def is_hex(value: bytes) -> bool:
    """Whether this looks like a hash or an id."""
    return not value.lower().strip(b"0123456789abcdef-")


def is_known_id(value: bytes) -> bool:
    """Whether this is long and mixed but not secret: hashes, ids, ids of requests and calls."""
    return is_hex(value) or bool(_ID.match(value))


_ID = re2.compile(
    rb"(?i)(?:[a-z0-9.]{1,20}[+@])?sha(?:1|224|256|384|512)[-:_.]|(?-i:[a-z]{2,12}_01[0-9A-Za-z]{20,26}$)"
    rb"|commit[0-9a-f]{40}|(?:toolu|tool|msg|req|call|resp|chatcmpl|cmpl|fc|rs|sesn|ses|run|"
    rb"evt|event|batch|file|asst|thread|step|item|part|prt|usr|user|org|proj|arn|urn|integrity|md5)[-_:]"
)


def is_mixed(value: bytes) -> bool:
    """Whether this contains a digit, as keys do; names and words joined by dashes do not."""
    if any(48 <= byte <= 57 for byte in value):
        return True
    return len(value) > 30 and not value.islower() and not value.isupper()


def _mixture(value: bytes) -> tuple[int, int, int]:
    """How often the kind of character (digit, capital, small letter) changes within runs of letters
    and digits; the number of digits; the number of letters. From a capital to a small letter is no
    change, because words begin so."""
    changes = digits = letters = 0
    before = 0
    for byte in value[:200]:
        if 48 <= byte <= 57:
            kind = 1
            digits += 1
        elif 97 <= byte <= 122:
            kind = 2
            letters += 1
        elif 65 <= byte <= 90:
            kind = 3
            letters += 1
        else:
            kind = 0
        if kind and before and kind != before and (before, kind) != (3, 2):
            changes += 1
        before = kind
    return changes, digits, letters


_SENTENCE = re2.compile(
    r"(?i)\b(?:the|an?|to|of|is|are|for|your|must|not|and|in|with|or|no|be|if|this|that|has|please)\b"
)


_LEET = re2.compile(rb"[A-Za-z][0134579]+[A-Za-z]|[A-Za-z][0134579]+-")


def is_sentence(value: bytes) -> bool:
    """Whether this is text for people: words, one of them short, or starting with a capital."""
    words = value.split()
    if len(words) < 2:
        return False
    if len(words) < 4 and any(_LEET.search(word) for word in words):
        return False
    text = value.decode("utf-8", "replace")
    return value[:1].isupper() or (len(words) > 3 and bool(_SENTENCE.search(text)))


FITS: dict[str, Callable[[bytes], bool]] = {
    "any": lambda value: True,
    "chosen": is_chosen,
    "mixed": lambda value: is_mixed(value) and b"://" not in value,
    "random": is_random,
    "known": lambda value: (
        is_random(value, 12) or (is_mixed(value) and is_chosen(value) and not value.isalnum())
    ),
    "password": is_password,
    "told": is_told,
    "long": lambda value: is_random(value, 20) or (len(value) >= 32 and is_hex(value)),
    "lone_line": lambda value: (
        is_random(value, 12)
        or is_scrambled(value)
        or is_password(value)
        or (is_hex(value) and len(value) >= 32)
    ),
    "lone": lambda value: is_told(value) or is_scrambled(value),
    "opaque": is_opaque,
    "key": lambda value: is_random(value, 20) and not is_known_id(value) and not is_code(value),
    "credential": lambda value: is_mixed(value) and not is_code(value),
}
