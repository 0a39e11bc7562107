"""Makes a run from a session that died without segue, and plays it. Separate from `rescue`, which
imports this only if a session is chosen."""

import os
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from segue.cli.work.run import accept_check, play
from segue.errors import InputError
from segue.runs.starting import installed_agents, run_request
from segue.runs.starting.rescue import can_resume, first_leg, origin_of
from segue.runs.starting.run_request import RunRequest
from segue.runs.store.port import Held
from segue.sessions.documents import known_work
from segue.system import clock
from segue.system.config import settings as layered
from segue.system.config.settings import Flags, Settings
from segue.system.files import tree
from segue.views import printing
from segue.views.rescues.listing import Dead
from segue.views.run.story import not_carried_over
from segue.watch.predecessors import earlier


class How(Struct, frozen=True, kw_only=True):
    """The options of `segue rescue`."""

    flags: dict[str, Any]  # the arguments of `Flags`
    given: tuple[str, ...] | None = None  # arguments for the agent; None: not given
    folder: str | None = None  # --in: where the session's folder is now
    fresh: bool = False
    trusts: bool = False
    dry: bool = False
    detach: bool = False
    as_json: bool = False
    raw: bool = False


def rescue(dead: Dead, how: How) -> int:
    """Continues the session; returns the exit code. Raises SegueError if the run cannot start."""
    wanted, settings = _request(dead, how)
    if wanted.origin is not None and wanted.origin.changed:
        printing.complain(
            f"{wanted.cwd} changed since the session stopped: {wanted.origin.changed}"
        )
    if wanted.agent != dead.session.agent:
        printing.complain(not_carried_over(dead.session.agent, wanted.agent))
    if how.dry:
        from segue.cli.support.run.dry_run import show

        first = first_leg(wanted, settings.prompts, clock.now())
        show(wanted, settings, as_json=how.as_json, first=first)
        return 0
    from segue.cli.support.run.warnings import warn

    warn(wanted, os.environ, strict=False)
    try:
        if not how.detach:
            return play(wanted, settings, as_json=how.as_json, raw=how.raw)
        from segue.cli.support.run.detach import begin as begin_detached

        begin_detached(wanted, settings, as_json=how.as_json, raw=how.raw)
        return 0
    except Held as held:
        holder = held.holder
        raise InputError(
            f"session {dead.session.session_id} is being rescued by process {holder.pid}"
            f" ({holder.note}); segue runs shows it"
        ) from None


def _place(dead: Dead, folder: str | None) -> str:
    """The folder that the run works in. Raises InputError if it is gone, moved or not writable."""
    name, cwd = dead.session.session_id, dead.session.cwd
    if folder is not None:
        path = os.path.realpath(os.path.expanduser(folder))
        if not os.path.isdir(path):
            raise InputError(f"--in {folder}: no such folder")
        return path
    do = f"segue rescue {name} --in FOLDER"
    if not cwd:
        raise InputError(f"session {name} does not say in which folder it worked; name it: {do}")
    if not os.path.isdir(cwd):
        raise InputError(
            f"session {name} worked in {cwd}, which no longer exists; if it moved: {do}"
        )
    if not os.access(cwd, os.W_OK | os.X_OK):
        raise InputError(f"session {name} worked in {cwd}, which you cannot write to")
    if (lost := tree.lost_repository(cwd)) is not None:
        raise InputError(
            f"session {name} worked in {cwd}, a worktree of a repository that moved: {lost} is not"
            " there; from the repository: git worktree repair FOLDER"
        )
    return cwd


def _request(dead: Dead, how: How) -> tuple[RunRequest, Settings]:
    """The request for the run that continues the session. Raises InputError or ConfigError."""
    session, cwd = dead.session, _place(dead, how.folder)
    settings = layered.load(cwd, os.environ, Flags(**how.flags))
    installed_agents.register(settings)
    if not how.dry:
        accept_check(settings, how.trusts)
    known = known_work(session.agent, session.path, session.session_id, session.cwd or cwd)
    wanted = run_request.request(
        known.task, settings.agent, settings, os.environ, cwd=cwd, flags=how.given, dry=how.dry
    )
    is_same = (
        "same_session" in dead.ways
        and not how.fresh
        and how.folder is None
        and can_resume(wanted.drive, session, os.environ, cwd)
    )
    origin = origin_of(
        session,
        dead.reason,
        known,
        cwd=cwd,
        is_same=is_same,
        is_cut=dead.is_cut,
        earlier=earlier(session),
    )
    return replace(wanted, origin=origin), settings
