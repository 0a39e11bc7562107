"""Collects what is handed over when a session is replaced, from everything that the legs left
behind."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from segue.core.handoffs.checkpoint import Checkpoint
from segue.core.handoffs.compose import Salvaged, combine, compose, merge
from segue.core.handoffs.digest import Builder, Digest
from segue.core.handoffs.summary import CHARS_PER_TOKEN, AgentSummary, extract
from segue.core.runs.progress import Progress
from segue.core.runs.types import Origin, Run
from segue.core.stops.events import Event
from segue.runs.folders import read
from segue.runs.legs.stream import LegStream
from segue.runs.staff import Hand
from segue.sessions.digest import read_session
from segue.sessions.documents import known
from segue.sessions.salvage import Salvager, salvage
from segue.system.files import tree
from segue.system.git import git

HandOf = Callable[[Path], Hand]
"""Whose leg a folder is of."""
Printed = Mapping[Path, Salvager]
"""What legs printed, by their folders; one that could not be started printed nothing."""


def collect(
    run: Run,
    folders: Sequence[Path],
    hand_of: HandOf,
    printed: Printed,
    env: Mapping[str, str],
    digest: Digest,
) -> Checkpoint:
    """The checkpoint of a run, from the folders of its legs and the digest of what its sessions
    said and saw. Never depends on the agent alone."""
    salvaged = merge([*_rescued(run, folders), *_sessions(run, folders, hand_of, printed, env)])
    said = read(folders[-1] / "told.md") if folders else None
    max_chars = run.policy.checkpoint_tokens * CHARS_PER_TOKEN
    told = extract(said, max_chars=max_chars) if said else None
    return _composed(run, salvaged, digest, told)


def collect_rescued(run: Run, digest: Digest) -> Checkpoint:
    """The same of a rescue that no leg was started for."""
    return _composed(run, merge(_rescued(run, ())), digest)


def _composed(
    run: Run, salvaged: Salvaged, digest: Digest, told: AgentSummary | None = None
) -> Checkpoint:
    return compose(
        run.task,
        told=told,
        salvaged=salvaged,
        git=git.status(run.cwd),
        files=tree.files_now(salvaged.files, run.cwd),
        digest=digest,
        window_tokens=run.reading.window_tokens if run.reading else 0,
        is_there=lambda path: tree.is_there(path, run.cwd),
    )


def _rescued(run: Run, folders: Sequence[Path]) -> list[Salvaged]:
    """What the session tells that the run goes on with, unless a leg went on in it: then it tells
    that itself."""
    origin = run.origin
    if origin is None:
        return []
    if origin.session_id in {read(folder / "session") for folder in folders}:
        return []
    return [known(origin.agent, origin.path, origin.session_id, run.cwd).salvaged]


def _sessions(
    run: Run,
    folders: Sequence[Path],
    hand_of: HandOf,
    printed: Printed,
    env: Mapping[str, str],
) -> list[Salvaged]:
    """What each session tells, with all its legs, in the order of the work."""
    legs: dict[str, list[Path]] = {}
    for folder in folders:
        legs.setdefault(read(folder / "session") or folder.name, []).append(folder)
    found = []
    for session_id, its in legs.items():
        hand = hand_of(its[0])
        drive, profile = hand.drive, hand.profile
        prompts = [text for folder in its for text in said_in(folder)]
        told = [run.task, *prompts]
        path = drive.session_file(session_id, env, run.cwd) if drive.session_file else ""
        streams = [printed.get(folder, Salvager()).result(told) for folder in its]
        if path:
            whole = salvage(profile.name, path, session_id=session_id, told=told, cwd=run.cwd)
        else:
            whole = merge(streams[:-1])
        # Of a killed leg the stream knows more than the file; that of an earlier one is in it.
        found.append(combine(whole, streams[-1]))
    return found


def said_in(folder: Path) -> list[str]:
    """What segue itself said in a leg."""
    files = [folder / "prompt.md", *sorted(folder.glob("recall-*.md"))]
    return [text for file in files if (text := read(file))]


def prime_origin(progress: Progress, digest: Builder, origin: Origin, until: float) -> None:
    """The same of the session that a rescue goes on with. What its own legs say in it comes later:
    they are told by their streams."""
    read_session(_Until(progress, digest, until), origin.agent, origin.path, origin.session_id)


class _Until:
    """Takes in what happened before a time."""

    def __init__(self, progress: Progress, digest: Builder, until: float) -> None:
        self.progress, self.digest, self.until = progress, digest, until
        self._is_over = False

    def feed(self, event: Event) -> None:
        if event.at is not None:
            self._is_over = event.at > self.until
        if not self._is_over:
            self.progress.feed(event)
            self.digest.feed(event)


def prime(
    progress: Progress, digest: Builder, folders: Sequence[Path], hand_of: HandOf, cwd: str
) -> dict[Path, Salvager]:
    """Tells the measure of progress and the digest what earlier legs did, for a process that did
    not see it; what each of them printed."""
    found = {}
    for folder in folders:
        for text in said_in(folder):
            digest.tell(text)
        stream = LegStream(folder / "stdout", hand_of(folder).profile, cwd)
        for event in stream.replay():
            progress.feed(event)
            digest.feed(event)
        found[folder] = stream.salvager
    return found
