"""Which sessions a user's word means."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class SessionName(NamedTuple):
    """What a session can be called by; "" where it is unknown."""

    session_id: str
    path: str = ""
    cwd: str = ""


def matching(
    word: str,
    sessions: Iterable[T],
    name_of: Callable[[T], SessionName],
    real: Callable[[str], str] = str,
) -> list[T]:
    """Those that a word may mean, in their order: by their id, their file, the beginning of the id,
    the project's folder, or the last part of it. The first of these ways that fits any decides.
    `real` follows links, where there is a file system to look at."""
    named = [(each, name_of(each)) for each in sessions]
    path = real(word)
    ways: tuple[Callable[[SessionName], bool], ...] = (
        lambda name: name.session_id == word,
        lambda name: name.path != "" and real(name.path) == path,
        lambda name: word != "" and name.session_id.startswith(word),
        lambda name: name.cwd != "" and _bare(real(name.cwd)) == _bare(path),
        lambda name: name.cwd != "" and _bare(name.cwd).rpartition("/")[2] == word,
    )
    for fits in ways:
        if found := [each for each, name in named if fits(name)]:
            return found
    return []


def _bare(folder: str) -> str:
    return folder.rstrip("/") or folder
