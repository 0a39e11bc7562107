"""Sets of words, as they are written."""


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())
