"""What is handed on when a session is replaced: collected from all that the legs left behind."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from segue.agents.drive import Drive
from segue.agents.live import Live
from segue.agents.profile import Profile
from segue.core.checkpoint import Checkpoint
from segue.core.compose import Salvaged, combine, compose, merge
from segue.core.progress import Progress
from segue.core.run import Run
from segue.core.told import extract
from segue.io import git, tree
from segue.io.stream import Tail
from segue.runner.folders import read
from segue.transcripts.salvage import salvage, salvage_stream


def collect(
    run: Run, folders: Sequence[Path], drive: Drive, profile: Profile, env: Mapping[str, str]
) -> Checkpoint:
    """The checkpoint of a run, from the folders of its legs. Never depends on the agent alone."""
    known = merge(_sessions(run, folders, drive, profile, env))
    said = read(folders[-1] / "told.md") if folders else None
    return compose(
        run.task,
        told=extract(said) if said else None,
        salvaged=known,
        git=git.status(run.cwd),
        files=tree.files_now(known.files, run.cwd),
        is_there=lambda path: tree.is_there(path, run.cwd),
    )


def _sessions(
    run: Run, folders: Sequence[Path], drive: Drive, profile: Profile, env: Mapping[str, str]
) -> list[Salvaged]:
    """What each session tells, with all its legs, in the order of the work."""
    legs: dict[str, list[Path]] = {}
    for folder in folders:
        legs.setdefault(read(folder / "session") or folder.name, []).append(folder)
    found = []
    for session_id, its in legs.items():
        prompts = [text for folder in its if (text := read(folder / "prompt.md"))]
        told = [run.task, *prompts]
        path = drive.session_file(session_id, env, run.cwd) if drive.session_file else ""
        streams = [
            salvage_stream(profile.name, str(folder / "stdout"), told=told, cwd=run.cwd)
            for folder in its
        ]
        if path:
            whole = salvage(profile.name, path, session_id=session_id, told=told, cwd=run.cwd)
        else:
            whole = merge(streams[:-1])
        # Of a killed leg the stream knows more than the file; that of an earlier one is in it.
        found.append(combine(whole, streams[-1]))
    return found


def prime(progress: Progress, folders: Sequence[Path], profile: Profile) -> None:
    """Tells the measure of progress what earlier legs did, for a process that did not see it."""
    for folder in folders:
        live = Live(profile)
        with Tail(folder / "stdout") as tail:
            while (lines := tail.read()) or tail.has_more:
                for event in live.feed(lines):
                    progress.feed(event)
