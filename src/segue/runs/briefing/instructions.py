"""Finds the instruction files of a project (CLAUDE.md, AGENTS.md, GEMINI.md …) that an agent
would not read by itself. Each agent's drive names its own (`Drive.instructions`)."""

from collections.abc import Iterable
from pathlib import Path

from segue.agents import drives
from segue.agents.contracts.drive import Drive


def unread_after(cwd: str, drive: Drive, before: str) -> tuple[str, ...]:
    """The instruction files of the agent that worked there `before`, and of every other agent
    segue knows: what is written for one of them is meant for whoever does the work."""
    known = [found for name in (before, *drives.names()) if (found := drives.find(name))]
    return unread(cwd, drive, known)


def unread(cwd: str, drive: Drive, earlier: Iterable[Drive]) -> tuple[str, ...]:
    """The existing instruction files of `earlier` that `drive` does not read when it starts."""
    top = Path(cwd)
    for folder in (top, *top.parents):
        if (folder / ".git").exists():
            top = folder
            break
    folders = [top] if top == Path(cwd) else [top, Path(cwd)]
    found: dict[str, None] = {}
    for folder in folders:
        own = set(_read(folder, drive))
        for other in earlier:
            for name in _read(folder, other):
                if name not in own and not _is_same(folder, name, own):
                    found[str((folder / name).relative_to(top))] = None
    return tuple(found)


def _read(folder: Path, drive: Drive) -> list[str]:
    present = [name for name in drive.instructions if (folder / name).is_file()]
    return present[:1] if drive.first_instructions_only else present


def _is_same(folder: Path, name: str, read: Iterable[str]) -> bool:
    """Whether both names lead to the same file."""
    return any((folder / name).samefile(folder / each) for each in read)
