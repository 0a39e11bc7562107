"""Sets of words, as they are written, and what is done to their characters."""

from collections.abc import Sequence


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def swaps(characters: str, into: str | None) -> Sequence[str | int | None]:
    """A table for `str.translate` that makes each of these something else, or nothing. A dict would
    do, and take five times as long: it is asked for each letter that it does not know."""
    found: list[str | int | None] = list(range(128))
    for character in characters:
        found[ord(character)] = into
    return found
