"""Which project a folder belongs to, and whether its file can be trusted.

A project's file comes with a repository, so whoever wrote the repository wrote the file. segue
looks for it no higher than the repository's root, so that a stranger's file in a shared folder
above does not count.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

NAME = ".segue.toml"


def find_project(cwd: Path, env: Mapping[str, str], notes: list[str]) -> Path | None:
    """The nearest `.segue.toml`, from the working folder up to the root of its git repository;
    outside a repository, up to just below the home. A file of another user is ignored, with a
    note."""
    for folder in _upwards(Path(os.path.abspath(cwd)), env):
        file = folder / NAME
        try:
            owner = file.stat().st_uid
        except OSError:
            if not os.path.islink(file):
                continue
            notes.append(f"{file} is a broken link and is ignored")
            return None
        if owner in (0, os.geteuid()):
            return file
        notes.append(f"{file} belongs to another user and is ignored")
        return None
    return None


def inside(path: Path, folder: Path) -> bool:
    """Whether a path stays inside a folder, with links resolved."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):
        return False


def _upwards(cwd: Path, env: Mapping[str, str]) -> Iterator[Path]:
    chain = [cwd, *cwd.parents]
    home = Path(env["HOME"]) if env.get("HOME") else None
    below_home = home in cwd.parents if home else False
    root = next((p for p in chain if os.path.exists(p / ".git")), None)  # never raises
    if root == home:
        root = None  # a home that is itself a repository (dotfiles) is not a project
    for folder in chain:
        if folder == home and folder != cwd:
            return
        yield folder
        if folder == root or (root is None and not below_home):
            return
