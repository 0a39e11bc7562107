"""Sets of words, written as text, and tables for changing characters."""

from collections.abc import Sequence


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def swaps(characters: str, into: str | None) -> Sequence[str | int | None]:
    """A table for `str.translate` that replaces or removes each of these characters. A dict would
    take five times as long, because it is asked about each letter that it does not contain."""
    found: list[str | int | None] = list(range(128))
    for character in characters:
        found[ord(character)] = into
    return found
