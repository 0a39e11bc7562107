"""`segue restore RUN [SNAPSHOT]`: the work of a run on a branch or in a folder, without
overwriting existing files."""

import shlex

import click

from segue.cli.support.run.lookup import find_or_newest, must_be_here, opened
from segue.cli.work.diff import with_snapshots
from segue.core.nearest import did_you_mean
from segue.core.runs.types import Run
from segue.errors import InputError
from segue.system import clock
from segue.system.git import snapshots
from segue.system.git.snapshots import Snapshot
from segue.views import printing
from segue.views.verdicts import iso, time_of_day


@click.command()
@click.argument("run", required=False)
@click.argument("snapshot", required=False)
@click.option("--branch", metavar="NAME", help="The branch to create; default: segue/RUN-SNAPSHOT.")
@click.option("--to", metavar="FOLDER", help="Write the files into this new or empty folder.")
@click.option("--list", "is_list", is_flag=True, help="List the snapshots, and restore nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(
    run: str | None,
    snapshot: str | None,
    branch: str | None,
    to: str | None,
    is_list: bool,
    as_json: bool,
) -> None:
    """Restore the work of RUN as of SNAPSHOT (by default, the last one), on a new branch that is
    not checked out, or in a folder. Your files, index and branches stay as they are."""
    if branch is not None and to is not None:
        raise InputError("--branch and --to cannot be combined")
    with opened() as store:
        found = find_or_newest(store, run)
        must_be_here(store, found)
    found, taken = with_snapshots(found)
    if is_list:
        _list(found, taken, as_json)
        return
    if not taken:
        raise InputError(f"{found.id} has no snapshots: they are off, or older than 30 days")
    wanted = _choose(found, taken, snapshot)
    row: dict[str, object] = {
        "run": found.id,
        "snapshot": wanted.name,
        "commit": wanted.commit,
        "branch": None,
        "folder": None,
    }
    if to is not None:
        snapshots.to_folder(found.cwd, wanted, to)
        row["folder"] = to
        message = f"{wanted.name} of {found.id} is in {shlex.quote(to)}"
    else:
        name = branch or f"segue/{found.id}-{wanted.name}"
        is_new = snapshots.to_branch(found.cwd, wanted, name)
        row["branch"] = name
        verb = "is now branch" if is_new else "is already branch"
        message = f"{wanted.name} of {found.id} {verb} {name}\nto work on it: git switch {name}"
    printing.say_json(row) if as_json else printing.say(message)


def _choose(run: Run, taken: list[Snapshot], name: str | None) -> Snapshot:
    if name is None:
        return taken[-1]
    for each in taken:
        if each.name == name:
            return each
    hint = did_you_mean(name, [each.name for each in taken])
    hint = hint or f"segue restore {run.id} --list shows them"
    raise InputError(f"{run.id} has no snapshot {name!r}; {hint}")


def _list(run: Run, taken: list[Snapshot], as_json: bool) -> None:
    if as_json:
        listed = [{"snapshot": k.name, "commit": k.commit, "at": iso(k.at)} for k in taken]
        printing.say_json({"run": run.id, "snapshots": listed})
        return
    if not taken:
        printing.say("no snapshots", err=True)
    now, tz = clock.now(), clock.local_zone()
    for each in taken:
        when = time_of_day(each.at, now, tz)
        printing.say(f"{each.name:<12} {each.commit[:12]}  {when}  {_what(each)}")


def _what(each: Snapshot) -> str:
    if each.is_start:
        return f"before leg {each.leg}"
    is_end = "." not in each.name
    return f"after leg {each.leg}" if is_end else f"while leg {each.leg} worked"
