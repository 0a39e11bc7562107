"""Collects what is handed over when a session is replaced, from everything that the legs left
behind."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from segue.core.handoffs.checkpoint import Checkpoint
from segue.core.handoffs.compose import Salvaged, combine, compose, merge
from segue.core.handoffs.digest import Builder, Digest
from segue.core.handoffs.summary import CHARS_PER_TOKEN, AgentSummary, extract
from segue.core.runs.progress import Progress
from segue.core.runs.types import Origin, Run
from segue.core.stops.events import Event, Prompt
from segue.runs.folders import read, read_json
from segue.runs.legs.stream import LegStream
from segue.runs.staff import Hand
from segue.sessions.digest import read_session
from segue.sessions.documents import known_work
from segue.sessions.salvage import Salvager, salvage
from segue.system.files import tree
from segue.system.git import git

USER_WORDS_FILE = "said.json"
"""The file in a leg's folder with what the user added to its prompt."""
HandOf = Callable[[Path], Hand]
"""Returns the agent of a leg's folder."""
Printed = Mapping[Path, Salvager]
"""The output of legs, by their folders; a leg that could not be started has none."""


def collect(
    run: Run,
    folders: Sequence[Path],
    hand_of: HandOf,
    printed: Printed,
    env: Mapping[str, str],
    digest: Digest,
) -> Checkpoint:
    """The checkpoint of a run, from the folders of its legs and the digest of its sessions.
    Never depends on the agent alone."""
    salvaged = merge([*_rescued(run, folders), *_sessions(run, folders, hand_of, printed, env)])
    answer = read(folders[-1] / "told.md") if folders else None
    max_chars = run.policy.checkpoint_tokens * CHARS_PER_TOKEN
    summary = extract(answer, max_chars=max_chars) if answer else None
    return _composed(run, salvaged, digest, summary)


def collect_rescued(run: Run, digest: Digest) -> Checkpoint:
    """The first checkpoint of a rescue, before the run has any leg."""
    return _composed(run, merge(_rescued(run, ())), digest)


def _composed(
    run: Run, salvaged: Salvaged, digest: Digest, summary: AgentSummary | None = None
) -> Checkpoint:
    # The prompt of the next session has these with the task.
    later = tuple(each for each in digest.prompts if each.text not in run.additions)
    digest = replace(digest, prompts=later)
    return compose(
        run.task,
        summary=summary,
        salvaged=salvaged,
        git=git.status(run.cwd),
        files=tree.files_now(salvaged.files, run.cwd),
        digest=digest,
        window_tokens=run.reading.window_tokens if run.reading else 0,
        is_there=lambda path: tree.is_there(path, run.cwd),
    )


def _rescued(run: Run, folders: Sequence[Path]) -> list[Salvaged]:
    """The content of the session that the run continues, unless a leg continued in it: then that
    leg's records include it."""
    origin = run.origin
    if origin is None:
        return []
    if origin.session_id in {read(folder / "session") for folder in folders}:
        return []
    return [known_work(origin.agent, origin.path, origin.session_id, run.cwd).salvaged]


def _sessions(
    run: Run,
    folders: Sequence[Path],
    hand_of: HandOf,
    printed: Printed,
    env: Mapping[str, str],
) -> list[Salvaged]:
    """The content of each session, with all its legs, in the order of the work."""
    legs: dict[str, list[Path]] = {}
    for folder in folders:
        legs.setdefault(read(folder / "session") or folder.name, []).append(folder)
    found = []
    for session_id, its in legs.items():
        hand = hand_of(its[0])
        drive, profile = hand.drive, hand.profile
        prompts = [text for folder in its for text in said_in(folder)]
        known = [run.task, *prompts]
        path = drive.session_file(session_id, env, run.cwd) if drive.session_file else ""
        streams = [printed.get(folder, Salvager()).result(known) for folder in its]
        if path:
            whole = salvage(profile.name, path, session_id=session_id, known=known, cwd=run.cwd)
        else:
            whole = merge(streams[:-1])
        # For a killed leg the stream knows more than the file; the stream of an earlier leg is in
        # the file.
        found.append(combine(whole, streams[-1]))
    return found


def said_in(folder: Path) -> list[str]:
    """What segue itself told the session of a leg."""
    files = [folder / "prompt.md", *sorted(folder.glob("recall-*.md"))]
    return [text for file in files if (text := read(file))]


def add_user_words(digest: Builder, messages: Sequence[str]) -> None:
    """Adds what the user said when they resumed the run. Sessions have it inside a prompt of
    segue's, which is not theirs."""
    for text in messages:
        digest.feed(Prompt(text=text))


def prime_origin(progress: Progress, digest: Builder, origin: Origin, until: float) -> None:
    """The same for the session that a rescue continues. What the run's own legs did in it comes
    later, from their streams."""
    for agent, session_id, path in origin.earlier:
        read_session(digest, agent, path, session_id)
    read_session(_Until(progress, digest, until), origin.agent, origin.path, origin.session_id)


class _Until:
    """Takes in what happened before a certain time."""

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
    """Feeds what earlier legs did to the progress tracker and the digest, for a process that did
    not see it; returns the output of each."""
    found = {}
    for folder in folders:
        for text in said_in(folder):
            digest.tell(text)
        add_user_words(digest, read_json(folder / USER_WORDS_FILE) or ())
        stream = LegStream(folder / "stdout", hand_of(folder).profile, cwd)
        for event in stream.replay():
            progress.feed(event)
            digest.feed(event)
        found[folder] = stream.salvager
    return found
