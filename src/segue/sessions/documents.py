"""Handoff documents on disk: read as untrusted text, and made from a session's records if the
session wrote none."""

import os
import sqlite3
import stat
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from typing import NamedTuple

from msgspec.structs import replace

from segue import agents
from segue.agents import drives
from segue.agents.contracts.profile import Profile, Record
from segue.core.handoffs.checkpoint import Checkpoint
from segue.core.handoffs.compose import Salvaged, compose
from segue.core.handoffs.digest import Builder
from segue.core.handoffs.document import Recorded, names_in, own, recorded
from segue.core.handoffs.prompts import task_in
from segue.core.stops.events import Event, Prompt
from segue.sessions import database, find, tail
from segue.sessions.digest import read_session
from segue.sessions.salvage import salvage
from segue.system.files import tree
from segue.system.files.documents import read_document
from segue.system.git import git

_HEADS = (16 << 10, 128 << 10, 1 << 20, 8 << 20)  # bytes; a task may contain images
_FIRST_MESSAGES = 20


class KnownWork(NamedTuple):
    """A session, live or dead, as far as its records show without its agent."""

    task: str  # verbatim; "" if it cannot be read
    salvaged: Salvaged


class Predecessor(NamedTuple):
    """A session whose work a later one took over."""

    agent: str
    session_id: str
    path: str


def predecessor(
    agent: str, session_id: str, *, successor: str, cwd: str, env: Mapping[str, str]
) -> Predecessor:
    """The session with this id, in the database `successor` or in its agent's home."""
    store = agents.stores().get(agent)
    is_shared = store is not None and store.database
    path = successor if is_shared else path_of(agent, session_id, cwd, env)
    return Predecessor(agent, session_id, path)


def known_work(agent: str, path: str, session_id: str, cwd: str) -> KnownWork:
    """What a session was asked to do, and what it did. If it was itself started by a handoff, its
    task and the user's words come from there. Never raises."""
    if path.endswith(".md"):
        return KnownWork(_markdown_task(path), Salvaged())
    task, before = _task_and_document(agent, path, session_id, cwd)
    found = salvage(agent, path, session_id=session_id, known=[task] if task else [], cwd=cwd)
    instructions = dict.fromkeys((*(before.additions if before else ()), *found.instructions))
    return KnownWork(task, replace(found, instructions=tuple(instructions)))


def known_task(agent: str, path: str, session_id: str, cwd: str) -> str:
    """Only its task: reads just the beginning."""
    if path.endswith(".md"):
        return _markdown_task(path)
    return _task_and_document(agent, path, session_id, cwd)[0]


def _task_and_document(
    agent: str, path: str, session_id: str, cwd: str
) -> tuple[str, Recorded | None]:
    """A session's task, and the document that it was started with."""
    first = first_prompt(agent, path, session_id)
    before = _before(first, cwd)
    return (before.task if before else task_in(first)), before


def checkpoint_of(
    known: KnownWork,
    agent: str,
    path: str,
    session_id: str,
    cwd: str,
    *,
    window_tokens: int = 0,
    earlier: Iterable[Predecessor] = (),
) -> Checkpoint:
    """The rule-made checkpoint, including secrets (see `checkpoint.clean`)."""
    digest = Builder([known.task] if known.task else [])
    for before in earlier:
        read_session(digest, before.agent, before.path, before.session_id)
    read_session(digest, agent, path, session_id)
    return compose(
        known.task,
        salvaged=known.salvaged,
        git=git.status(cwd) if cwd else None,
        files=tree.files_now(known.salvaged.files, cwd),
        digest=digest.digest(),
        window_tokens=window_tokens,
    )


def _markdown_task(path: str) -> str:
    """The task of a workflow is its file: it contains no prompt."""
    return (
        f"Continue the workflow in {path}, from its first unfinished step, and"
        " keep that file up to date."
    )


def own_document(
    agent: str,
    path: str,
    session_id: str,
    cwd: str,
    *,
    id: str,
    at: float,
    percent: float,
    env: Mapping[str, str],
    earlier: Iterable[Predecessor] = (),
) -> str:
    """The rule-made document of a session, live or dead, from its records and the files. If `path`
    is "", the agent's home is searched according to `env`. If the session was itself started by a
    handoff, the user's words from there are included, and what the sessions before it (`earlier`,
    the oldest first) knew. Never raises; the less can be read, the less it says."""
    path = path or path_of(agent, session_id, cwd, env)
    known = known_work(agent, path, session_id, cwd)
    return own(
        checkpoint_of(known, agent, path, session_id, cwd, earlier=earlier),
        id=id,
        agent=agent,
        session_id=session_id,
        project=cwd,
        at=at,
        context_usage=percent / 100,
    )


def first_prompt(agent: str, path: str, session_id: str) -> str:
    """The user's first prompt in a session, complete; "" if it cannot be read."""
    profile = agents.find(agent)
    if profile is None or not path:
        return ""
    store = agents.stores().get(profile.name)
    with suppress(OSError, ValueError, database.Unreadable):
        if store is not None and store.database:
            return _first(profile, _first_records(path, session_id))
        handle = find.open_file(path)
        try:
            info = os.fstat(handle)
            if not stat.S_ISREG(info.st_mode):
                return ""
            if path.endswith(".json"):
                return _first(profile, tail.document(handle, info.st_size))
            for length in _HEADS:
                if prompt := _first(profile, tail.first_records(handle, length)):
                    return prompt
                if length >= info.st_size:
                    break
        finally:
            os.close(handle)
    return ""


def _first(profile: Profile, records: Iterable[Record]) -> str:
    events: Iterable[Event] = profile.parse(records)
    prompts = (event.text.strip() for event in events if isinstance(event, Prompt))
    return next(filter(None, prompts), "")


def _first_records(path: str, session_id: str) -> list[Record]:
    """The first messages of a session in a database, with their parts."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # SQLite would block at the end of a pipe
        return []
    found: list[Record] = []
    with closing(database.connect(path)) as db:
        try:
            messages = db.execute(
                "SELECT id, time_created, data FROM message WHERE session_id = ?"
                " ORDER BY time_created, id LIMIT ?",
                (session_id, _FIRST_MESSAGES),
            ).fetchall()
            for name, created, data in messages:
                row = {"id": name, "session_id": session_id, "time_created": created, "data": data}
                found.append(Record({"table": "message", **row}))
                for part, at, content in db.execute(
                    "SELECT id, time_created, data FROM part WHERE message_id = ? ORDER BY id",
                    (name,),
                ):
                    row = {
                        "id": part,
                        "session_id": session_id,
                        "time_created": at,
                        "data": content,
                    }
                    found.append(Record({"table": "part", "message_id": name, **row}))
        except sqlite3.Error:
            return []
    return found


def _before(prompt: str, cwd: str) -> Recorded | None:
    """The content of the document with which a session began."""
    for name in names_in(prompt):
        for path in _paths(prompt, name):
            text, _ = read_document(os.path.join(cwd, path))
            if text and (found := recorded(text)):
                return found
    return None


def _paths(prompt: str, name: str) -> Iterable[str]:
    """The paths with which a text may name a file: the path may contain spaces, and follow other
    words."""
    for line in prompt.split("\n"):
        end = line.find(name)
        if end < 0:
            continue
        whole = line[: end + len(name)].strip()
        yield whole
        for place, char in enumerate(whole):
            if char in " \t'\"`(<":
                yield whole[place + 1 :]


def path_of(agent: str, session_id: str, cwd: str, env: Mapping[str, str]) -> str:
    """Where an agent keeps a session in its home; "" if that is unknown."""
    drive = drives.find(agent)
    if drive is None or drive.session_file is None or not session_id:
        return ""
    return drive.session_file(session_id, env, cwd)
