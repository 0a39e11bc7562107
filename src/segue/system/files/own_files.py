"""The names of everything segue creates in its state folder. `SEGUE_HOME` may be any folder, and
people keep their own things there: segue never deletes what is not listed here."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from segue.system.files import state

RUN_ID = re.compile("run-[0-9a-f]{8}")

_DATABASE = (
    r"(?:sessions|runs|watch|queue)\.db(?:-wal|-shm|-journal|\.damaged-[0-9]{8}T[0-9]{6}-[0-9]+)?"
)
_SOCKET = (
    r"(?:segue|[0-9a-f]{16})\.sock"
    r"(?:\.lock|\.[0-9]+|\.hooks|\.hooks\.taken|\.line[0-7](?:\.new)?)?"
)
_OWN: dict[str, re.Pattern[str]] = {
    "": re.compile(
        rf"{_DATABASE}|drill\.jsonl|doubts\.jsonl|doubts\.[0-9]+\.new|dashboard-[0-9a-f]{{8}}\.html"
        r"|accounts\.(?:json|lock|damaged)|\.accounts\.json\.[0-9]+"
        r"|prices\.json(?:\.[0-9]+\.new)?"
    ),
    "runs": RUN_ID,  # with all of their content
    "tasks": re.compile("task-[0-9a-f]{8}"),
    "fleet": re.compile(r"leash\.(?:json|lock)"),
    "trusted": re.compile("[0-9a-f]{64}"),
    "open": re.compile(r"tmux\.sock|(?:start|end)-[0-9a-f]{16}"),
    "watch/headless": re.compile(r"w-[0-9a-f]{8}\.log"),
    "watch": re.compile(
        rf"{_SOCKET}|token|setup\.json|watch\.out|former-[0-9a-f]{{8}}\.sh"
        # left behind by a killed process
        r"|\.(?:setup\.json|former-[0-9a-f]{8}\.sh)\.[a-z0-9_]{8}"
    ),
}
"""Folders, the inner ones first, and which of the names in them are segue's."""
_FOLDERS = {
    "runs": re.compile(r"(?:leg|check)-[0-9]{3}.*|segue\.log|notices|check"),
    "tasks": re.compile(r"segue\.log|setup-[0-9]+|sessions"),
}
"""Names of folders, with a pattern that at least one name inside must match: other folders belong
to the user."""
_NOT_STATE = ("config.toml",)  # the user's settings, not state
WORK = ("trees", "repos")
"""Worktrees and mirrors of tasks: segue created them, but the work in them may exist nowhere
else."""


def delete(folder: Path) -> list[str]:
    """Deletes segue's files in a state folder, and folders of segue's that are empty afterwards.
    Returns what was left, by relative path; the user's config is not listed."""
    for below, own in _OWN.items():
        for entry in _entries(folder / below):
            if own.fullmatch(entry.name):
                _delete(Path(entry.path), inside=_FOLDERS.get(below))
    for below in (*filter(None, _OWN), *WORK):
        with suppress(OSError):
            os.rmdir(folder / below)
    place = Path(state.socket_path())
    # located elsewhere, because the path was too long
    if place.parent != folder / state.WATCH_NAME:
        endings = ("", ".lock", state.SPOOL_ENDING, f"{state.SPOOL_ENDING}.taken")
        for ending in (*endings, *state.LINE_ENDINGS):
            _delete(Path(f"{place}{ending}"))
    return list(_remaining_names(folder))


def _remaining_names(folder: Path) -> Iterator[str]:
    for entry in _entries(folder):
        if entry.name in (*_OWN, *WORK) and entry.is_dir():
            for inner in _entries(Path(entry.path)):
                yield f"{entry.name}/{inner.name}"
        elif entry.name not in _NOT_STATE:
            yield entry.name


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []


def _delete(path: Path, *, inside: re.Pattern[str] | None = None) -> None:
    """Deletes a file, an empty folder, or what segue created in its own folders. segue creates no
    links, so a link is never one of its folders."""
    if inside is None:
        with suppress(OSError):
            path.unlink()
    elif path.is_dir() and not path.is_symlink():
        names = [entry.name for entry in _entries(path)]
        if not names or any(inside.fullmatch(name) for name in names):
            shutil.rmtree(path, ignore_errors=True)
