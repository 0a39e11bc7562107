"""What lines have in common. Lines that differ only in numbers and names of things have the same
shape. Shapes distinguish a fact, said once, from a log, said a thousand times; and they show that a
later line says something else about the same thing."""

import re
from array import array
from math import log2
from string import ascii_letters, digits, hexdigits
from zlib import crc32

from segue.core.handoffs.digest.words import swaps, words

_HEX = re.compile(rb"0x[0-9a-fA-F]+|[0-9a-fA-F]{12,}")
_LONG_HEX = b"0" * 12
_HEXED = bytes(48 if chr(code) in hexdigits else 32 for code in range(256))
_DIGITS = digits.encode()
_NOT_DIGITS = bytes(48 if chr(code) in digits else 32 for code in range(256))
_WORDS = _DIGITS + ascii_letters.encode() + bytes(range(128, 256))  # including other alphabets
ROW_NUMBERS = 4
"""With this many numbers, a line is a row of data."""
_GIVES = re.compile(r": |=| (?:is|are|was|changed|moved|->|→) ")
_BEFORE_VALUE = words("now currently actually always set changed moved to at in on from")
_NAME_CHARS = 80
_VALUE_WORDS = 5
_FILLER = words(
    "the a an this that our its their new current currently now actually correct right real final"
    " updated so and but note remember from to is was be has been changed of •"
)
_PUNCTUATION = swaps("`'\"*()[]{}<>,;!?-", None)
_COLUMNS = 1 << 14


def shape_of(line: str, *, is_row: bool | None = None) -> tuple[bytes, int]:
    """The line without its numbers, and how many it had. Only the form remains of a row of data; a
    line with many numbers counts as one unless `is_row` says otherwise. Uses byte tables, because
    it runs on every line that is kept."""
    data = line.encode("utf-8", "replace")
    numbers = len(data.translate(_NOT_DIGITS).split())
    if not numbers:
        return data, 0
    if _LONG_HEX in data.translate(_HEXED) or b"0x" in data:
        data = _HEX.sub(b" 0 ", data)
        numbers = len(data.translate(_NOT_DIGITS).split())
    is_row = numbers >= ROW_NUMBERS if is_row is None else is_row
    return data.translate(None, _WORDS if is_row else _DIGITS), numbers


def number_words(line: str) -> int:
    """How many words of a line contain a digit."""
    return sum(any(map(str.isdigit, word)) for word in line.split())


def rarity(count: int) -> float:
    """1 for something seen once, and less the more often it was seen."""
    return 1.0 / (1.0 + log2(count or 1))


def named_value(line: str) -> tuple[str, str] | None:
    """The name and the value of a line that gives a thing a value: `port: 8123`, "the port is now
    8123". None of any other. Names that mean the same are equal."""
    gives = _GIVES.search(line, 2, _NAME_CHARS)
    if gives is None:
        return None
    words = line[: gives.start()].lower().translate(_PUNCTUATION).split()
    name = " ".join(word for word in words if word not in _FILLER)
    if not name or len(name) > 60 or len(words) > 10:
        return None
    value = line[gives.end() : gives.end() + 200].split()
    while len(value) > 1 and value[0].lower() in _BEFORE_VALUE:
        del value[0]
    if not 0 < len(value) <= _VALUE_WORDS:
        return None  # a sentence after a colon is a statement, not a value
    return name, " ".join(value).rstrip(".,;")


class Frequencies:
    """How often something was seen, approximately and never too low. It has a fixed size, and the
    same texts give the same numbers in every process."""

    def __init__(self) -> None:
        self._rows = (array("I", bytes(4 * _COLUMNS)), array("I", bytes(4 * _COLUMNS)))

    def add(self, shape: bytes) -> int:
        """Counts one more occurrence, and returns its number."""
        value = crc32(shape)
        one, other = self._rows
        one[value % _COLUMNS] += 1
        other[(value >> 16) % _COLUMNS] += 1
        return value

    def of(self, value: int) -> int:
        """How often the thing with this number was seen."""
        one, other = self._rows
        return min(one[value % _COLUMNS], other[(value >> 16) % _COLUMNS])
