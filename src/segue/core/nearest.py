"""What was meant by a name that nobody knows."""

from collections.abc import Iterable

_MAX_CHARS = 80  # characters that are looked at
_MIN_RATIO = 0.6


def did_you_mean(name: str, known: Iterable[str], *, least: float = _MIN_RATIO) -> str:
    """ "did you mean status?", or "": a name that begins like this, or else the most similar one.
    Case, dashes and underscores do not matter. `least`: how similar, from 0 to 1."""
    import difflib

    names = {_plain(each): each for each in known}
    given = _plain(name[:_MAX_CHARS])
    begun = [plain for plain in names if len(given) > 1 and plain.startswith(given)]
    close = begun if len(begun) == 1 else difflib.get_close_matches(given, names, 1, least)
    return f"did you mean {names[close[0]]}?" if close else ""


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
