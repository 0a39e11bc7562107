"""`segue diff RUN`: what a run changed in its working tree, including uncommitted changes."""

import os
import sys

import click
from msgspec.structs import replace

from segue.cli.support.numbers import Whole
from segue.cli.support.run.lookup import find_or_newest, folder, opened
from segue.core.runs.types import Run
from segue.errors import InputError, SegueError
from segue.fleet.database import FleetDatabase
from segue.runs.results import RunResult, is_here
from segue.system.git import snapshots
from segue.system.git.snapshots import FileDiff, NoRepository, Snapshot
from segue.views import printing
from segue.views.diffs import counted_lines, styled
from segue.views.out import Out
from segue.views.verdicts import iso


@click.command()
@click.argument("run", required=False)
@click.option("--leg", type=Whole(min=1), metavar="N", help="What this leg changed.")
@click.option("--stat", is_flag=True, help="Only the files, with lines added and removed.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(run: str | None, leg: int | None, stat: bool, as_json: bool) -> None:
    """Show what RUN changed, from the tree it started with to its last snapshot, as a patch for
    `git apply`. Without RUN, use the newest run of this folder."""
    with opened() as store:
        found = find_or_newest(store, run)
        if isinstance(store, FleetDatabase) and not is_here(found):
            _print_remote(store, found, leg, stat=stat, as_json=as_json)
            return
    found, taken = with_snapshots(found)
    old, new = _ends(found, taken, leg)
    if as_json or stat:
        changed = snapshots.files(found.cwd, old.commit, new.commit)
        if as_json:
            printing.say_json(_as_dict(found, old, new, changed))
        else:
            for line in counted_lines(changed):
                printing.say(line)
        return
    text, is_whole = snapshots.patch(found.cwd, old.commit, new.commit)
    if sys.stdout.isatty():
        for line in text.decode("utf-8", "replace").split("\n")[:-1]:
            printing.say(styled(line))
    else:
        out = Out()
        out.write(text)
        out.finish()
    if not is_whole:
        raise InputError(f"the patch is too long and was cut; git diff {old.commit} {new.commit}")


def _print_remote(
    store: FleetDatabase, run: Run, leg: int | None, *, stat: bool, as_json: bool
) -> None:
    """Prints the changes of a run on another machine, as that machine published them. Raises
    InputError if it has not, or for a single leg."""
    from segue.fleet import output

    result, where = output.result(store, run.id), output.machine_of(store, run.id)
    if leg is not None:
        raise InputError(f"{run.id} is on {where}: only that machine can show what one leg changed")
    if result is None or result.files is None:
        why = result.note if result is not None else "it has not published its changes yet"
        raise InputError(f"{run.id} is on {where}: {why}")
    if as_json:
        printing.say_json({"run": run.id, "from": None, "to": None, **_changes(result)})
        return
    if stat:
        for line in counted_lines(list(result.files)):
            printing.say(line)
        return
    for line in result.patch.splitlines():
        printing.say(styled(line) if sys.stdout.isatty() else line)
    if result.is_cut:
        raise InputError(f"the patch is too long and was cut; all of it is on {where}")


def _changes(result: RunResult) -> dict[str, object]:
    return {
        "files": [
            {"path": each.path, "added": each.added, "removed": each.removed}
            for each in result.files or ()
        ],
        "commits": [{"commit": name, "subject": subject} for name, subject in result.commits],
    }


def with_snapshots(run: Run) -> tuple[Run, list[Snapshot]]:
    """The run with the folder in which its snapshots are, and the snapshots. If its repository
    moved, they moved with it: then the current folder's repository is searched. Raises InputError
    if there is none."""
    try:
        return run, snapshots.list_all(run.cwd, run.id)
    except NoRepository as fault:
        here = folder()
        if found := _moved_to(here, run):
            return replace(run, cwd=here), found
        if os.path.isdir(run.cwd):
            raise InputError(str(fault)) from None
        raise InputError(
            f"{run.id} worked in {run.cwd}, which no longer exists; if its repository moved, run"
            " this command there"
        ) from None


def _moved_to(here: str, run: Run) -> list[Snapshot]:
    try:
        return snapshots.list_all(here, run.id)
    except SegueError:
        return []


def _ends(run: Run, taken: list[Snapshot], leg: int | None) -> tuple[Snapshot, Snapshot]:
    """The two snapshots to compare. Raises InputError if one of them was not kept."""
    if not taken:
        raise InputError(f"{run.id} has no snapshots: they are off, or older than 30 days")
    if leg is None:
        return taken[0], taken[-1]
    own = [each for each in taken if each.leg == leg]
    if not own:
        last = taken[-1].leg
        raise InputError(f"{run.id} has no snapshots of leg {leg}; the last one is of leg {last}")
    return own[0], own[-1]


def _as_dict(run: Run, old: Snapshot, new: Snapshot, changed: list[FileDiff]) -> dict[str, object]:
    return {
        "run": run.id,
        **{
            name: {"snapshot": each.name, "commit": each.commit, "at": iso(each.at)}
            for name, each in (("from", old), ("to", new))
        },
        "files": [
            {"path": each.path, "added": each.added, "removed": each.removed} for each in changed
        ],
        "commits": [
            {"commit": name, "subject": subject}
            for name, subject in snapshots.commits(run.cwd, old.commit, new.commit)
        ],
    }
