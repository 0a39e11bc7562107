"""What the daemon reads and writes besides terminals: the records of sessions, and the documents
in which they hand over. A simulation puts models in their place."""

import os
from pathlib import Path
from typing import Any, NamedTuple

from segue import agents
from segue.core.sessions.types import Session
from segue.sessions import database, evidence
from segue.sessions.digest import Feeds, read_session
from segue.sessions.documents import own_document
from segue.system.files import documents
from segue.watch.owners import is_carried_on


class FileState(NamedTuple):
    """The state of a file."""

    size: int
    changed_ns: int

    @property
    def changed_at(self) -> float:
        """When it was last written, unix time."""
        return self.changed_ns / 1e9


class SessionRecords:
    """What sessions have recorded. Nothing here raises for unreadable data."""

    def look(
        self, agent: str, path: str, session_id: str, marker: str, since: float
    ) -> evidence.MessageEvidence:
        """Whether a message arrived, was read and was acted on: `evidence.look`."""
        return evidence.look(agent, path, session_id, marker, since)

    def latest(self, agent: str, path: str, session_id: str) -> evidence.LatestTurn:
        """The state of the last turn: `evidence.latest`."""
        return evidence.latest(agent, path, session_id)

    def has_file(self, session: Session) -> bool:
        """Whether the session is still on disk: for an unknown id, agents start another one. An
        unreadable session counts as existing."""
        if not os.path.exists(session.path):
            return False
        store = agents.stores().get(session.agent)
        if store is None or not store.database:
            return True
        try:
            return bool(database.records(session.path, session.session_id, 1))
        except database.Unreadable:
            return True

    def is_carried_on(self, session: Session) -> bool:
        """Whether a run works in the session, or has continued its work: `owners.is_carried_on`."""
        return is_carried_on(session)

    def replay(self, builder: Feeds, agent: str, path: str, session_id: str) -> None:
        """Passes everything that a session did to a digest builder."""
        read_session(builder, agent, path, session_id)


class DocumentFiles:
    """Handoff documents on disk."""

    def folder(self, cwd: str, name: str) -> Path:
        """Where a project's documents go. Raises SegueError if that is outside the project."""
        return documents.folder_of(cwd, name)

    def prepare(self, folder: Path) -> None:
        """Creates the folder. Raises OSError."""
        documents.prepare(folder)

    def state(self, path: str) -> FileState | None:
        """The current state of the file, without following links; None if there is none."""
        try:
            found = os.lstat(path)
        except OSError:
            return None
        return FileState(found.st_size, found.st_mtime_ns)

    def read(self, path: str, *, project: str) -> tuple[str, str]:
        """Its text, and why it cannot be used."""
        return documents.read_document(path, project=project)

    def write(self, folder: Path, name: str, text: str) -> Path:
        """Writes a document. Raises SegueError, OSError."""
        return documents.write(folder, name, text)

    def own(self, **known: Any) -> str:
        """The document that segue makes from a session's records, without the session's help."""
        return own_document(**known)
