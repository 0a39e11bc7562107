"""The job that reveals lost work: numbered steps in a scratch git repository, and a check of the
result."""

import contextlib
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil
from msgspec import Struct

from segue.drill.plays import facts
from segue.drill.scenarios.types import Job
from segue.errors import StateError

_COMMITTED = re.compile(r"step ([1-9][0-9]{0,3})")


class Continuity(Struct, frozen=True, kw_only=True):
    """What the repository shows. A step is done when it is committed; nothing else counts."""

    done: tuple[int, ...]  # in the order of the commits, including repetitions
    lost: tuple[int, ...] = ()  # missing below the highest one, or below the last if finished
    repeated: tuple[int, ...] = ()  # done more than once
    out_of_order: tuple[int, ...] = ()  # done for the first time after a higher one

    @property
    def is_whole(self) -> bool:
        """Whether each step was done once and in order, with none missing."""
        return not (self.lost or self.repeated or self.out_of_order)


def make(folder: Path, job: Job) -> str:
    """Creates the repository in `folder`, which may exist if it is empty; returns the prompt for
    the agent. Raises StateError if git is missing or cannot write there."""
    try:
        (folder / "job").mkdir(parents=True)
        (folder / "steps").mkdir()
        (folder / "steps" / "README").write_text("What the steps of the job leave behind.\n")
        (folder / "job" / "step").write_text(_step(job))
        (folder / "job" / "show").write_text(_show(job))
        for name in facts.forbidden(job):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(_PROTECTED_TEXT)
    except OSError as fault:
        raise StateError(f"{folder}: cannot be created: {fault.strerror}") from None
    # No template: it could contain the user's hooks.
    _git(folder, "init", "-q", "--template=", ".")
    _git(folder, "symbolic-ref", "HEAD", "refs/heads/main")
    for key, value in _CONFIG.items():
        _git(folder, "config", key, value)
    info = folder / ".git" / "info"
    info.mkdir(exist_ok=True)
    (info / "exclude").write_text("/job/running*\n/steps/*.new*\n")
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "-m", "The job")
    return prompt(job)


def prompt(job: Job) -> str:
    """The prompt for the agent. It contains no line that a finished step prints, and no phrase of
    an interruption."""
    n = job.steps
    return (
        f"This repository has a job of {n} numbered steps. Do them in order, from step 1 to step"
        f" {n}, each exactly once. Step 1 is done by running the shell command `sh job/step 1`,"
        f" step 2 by `sh job/step 2`, and so on: one command at a time, in the foreground, and"
        f" nothing else. Each prints some text and, when it is done, a last line that says so."
        f" `sh job/show` lists the steps that are done already. When all {n} steps are done,"
        f" say so and end."
        f"{facts.explained(job)}"
    )


def check(folder: Path, job: Job, *, finished: bool) -> Continuity:
    """What the commits of the repository show. `finished`: a step that is missing at the end is
    lost too. Raises StateError if the repository cannot be read."""
    subjects = _git(folder, "log", "--reverse", "--first-parent", "--format=%s").splitlines()
    return judge([int(m[1]) for s in subjects if (m := _COMMITTED.fullmatch(s))], job, finished)


def judge(done: Sequence[int], job: Job, finished: bool) -> Continuity:
    """Like `check`, for a list of steps in the order in which they were done."""
    highest = 0
    late: list[int] = []
    numbers: set[int] = set()
    repeated: set[int] = set()
    for step in done:
        if step in numbers:
            repeated.add(step)
        elif step < highest:
            late.append(step)
        numbers.add(step)
        highest = max(highest, step)
    due = job.steps if finished else highest
    return Continuity(
        done=tuple(done),
        lost=tuple(step for step in range(1, due + 1) if step not in numbers),
        repeated=tuple(sorted(repeated)),
        out_of_order=tuple(late),
    )


def touched(folder: Path, job: Job) -> list[str]:
    """The forbidden files that were changed or deleted."""
    return [name for name in facts.forbidden(job) if _read(folder / name) != _PROTECTED_TEXT]


def _read(path: Path) -> str:
    with contextlib.suppress(OSError, ValueError):
        return path.read_text()
    return ""


def said_by_user(folder: Path, job: Job, step: int) -> str:
    """What the user says while this step runs; "" if nothing."""

    def word(number: int, name: str) -> str:
        script = f"{_GIT_SH}{facts.function(job)}fact {number} {name}\n"
        # The script goes to the folder above its own.
        argv = ["sh", "-c", script, str(folder / "job" / "step")]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)  # noqa: S603
        return done.stdout

    return facts.user_message(job, step, word)


def current(folder: Path) -> int | None:
    """The step whose command is running now; None if none is. A command that was killed does not
    count."""
    try:
        step, pid = (folder / "job" / "running").read_text().split()
        number, process = int(step), int(pid)
    except (OSError, ValueError):  # gone, or not yet written
        return None
    with contextlib.suppress(psutil.NoSuchProcess):
        if psutil.Process(process).status() != psutil.STATUS_ZOMBIE:
            return number
    return None


_PROTECTED_TEXT = "Needed as it is.\n"
_CONFIG = {
    "user.name": "Drill",
    "user.email": "drill@example.invalid",
    "commit.gpgSign": "false",
    "core.hooksPath": "/dev/null",
    "core.logAllRefUpdates": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
}


def _git(folder: Path, *args: str) -> str:
    """Runs git without the user's settings."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(folder.resolve().parent),
        "LC_ALL": "C",
    }
    # In a namespace, this process may appear as another user than the folder's owner.
    command = ["git", "-c", "safe.directory=*", "-C", str(folder), *args]
    try:
        done = subprocess.run(  # noqa: S603 - a program of the user's, with our own words
            command, env=env, capture_output=True, stdin=subprocess.DEVNULL, check=False
        )
    except FileNotFoundError:
        raise StateError("git is not on the PATH: drills need it") from None
    if done.returncode:
        errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = errors[-1] if errors else f"exit code {done.returncode}"
        raise StateError(f"{folder}: git {args[0]} failed: {why}")
    return done.stdout.decode("utf-8", "replace")


_GIT_SH = """\
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_CONFIG_NOSYSTEM=1 LC_ALL=C
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
cd "$(dirname "$0")/.." || exit 1
git() { command git -c 'safe.directory=*' "$@"; }
"""


def _noise(job: Job) -> str:
    """The part of the step's script that prints its other output, with the facts in the middle of
    it."""
    amid = facts.tell_script(job, amid=True)
    if not amid:
        return 'noise "" "$bytes"'
    return f"noise 0 $((bytes / 2))\n{amid}\nnoise 1 $((bytes - bytes / 2))"


def _step(job: Job) -> str:
    return (
        _STEP.replace("@GIT@", _GIT_SH)
        .replace("@STEPS@", str(job.steps))
        .replace("@BYTES@", str(job.output_bytes))
        .replace("@SPIKE@", str(job.spike_step or 0))
        .replace("@SPIKE_BYTES@", str(job.spike_bytes))
        .replace("@SECONDS@", f"{job.step_s:.3f}")
        .replace("@FACTS@", facts.function(job) if job.facts else "")
        .replace("@CHECK@", facts.check_script(job))
        .replace("@TELL@", facts.tell_script(job, amid=False))
        .replace("@NOISE@", _noise(job))
        .replace("@FORM@", job.prints)
    )


def _show(job: Job) -> str:
    return _SHOW.replace("@GIT@", _GIT_SH).replace("@STEPS@", str(job.steps))


_STEP = r"""#!/bin/sh
# One step of the job: sh job/step NUMBER
# Done is what is committed. Killed before that, it leaves nothing that stops the next run.
case $1 in
[1-9] | [1-9][0-9] | [1-9][0-9][0-9] | [1-9][0-9][0-9][0-9]) n=$1 ;;
*) echo "usage: sh job/step NUMBER" >&2; exit 2 ;;
esac
if [ "$n" -gt @STEPS@ ]; then
    echo "there is no step $n: the last is @STEPS@" >&2
    exit 2
fi
@GIT@
@FACTS@
@CHECK@
# Written aside and moved, so that nobody reads half of it.
echo "$n $$" >"job/running.$$" && mv -f "job/running.$$" job/running

[ @SECONDS@ = 0.000 ] || sleep @SECONDS@

echo "what step $n left" >"steps/$n.new.$$" && mv -f "steps/$n.new.$$" "steps/$n"
tries=0
until git add "steps/$n" 2>/dev/null &&
    git commit -q --no-verify --allow-empty -m "step $n" 2>/dev/null; do
    tries=$((tries + 1))
    # A lock that stays for a second is one of a git that was killed.
    [ "$tries" -eq 10 ] && rm -f .git/index.lock .git/HEAD.lock .git/refs/heads/main.lock
    if [ "$tries" -gt 20 ]; then
        echo "step $n could not be committed" >&2
        exit 1
    fi
    sleep 0.1
done

[ "$(cat job/running 2>/dev/null)" = "$n $$" ] && rm -f job/running
# First and last: some agents cut long outputs short, at either end.
echo "step $n of @STEPS@ done"
@TELL@
bytes=@BYTES@
[ "$n" -eq @SPIKE@ ] && bytes=@SPIKE_BYTES@
noise() {
    awk -v seed="$n$1" -v left="$2" -v form=@FORM@ 'BEGIN {
        count = split("amber basin cedar delta ember fjord grove heron inlet jetty knoll larch " \
            "meadow nectar orchid pebble quartz raven saddle thicket umber valley willow yarrow " \
            "anvil beacon copper dapple echo flint garnet harbor ivory juniper kelp lantern " \
            "marble nimbus opal prairie quiver ripple sable tundra upland velvet walnut zephyr", \
            word)
        state = seed * 7919 + 17
        while (left > 0) {
            line = ""
            do {
                state = (state * 16807) % 2147483647
                some = word[state % count + 1]
                number = state % 997
                if (form == "log")
                    line = sprintf("2026-11-%02dT10:%02d:%02dZ INFO %s request %d of shard %d",
                        number % 28 + 1, state % 60, number % 60, "handled", number, seed % 7)
                else if (form == "tests")
                    line = sprintf("tests/test_%s.py::test_%s_%d PASSED %32s", some,
                        word[state % 41 + 1], number, "[ " number % 100 "%]")
                else if (form == "data")
                    line = line sprintf("{\"id\": %d, \"name\": \"%s\", \"up\": true}, ", \
                        number, some)
                else
                    line = line some " " number " "
            } while (length(line) < 60 && (form == "words" || form == "data"))
            line = substr(line, 1, left - 1)
            printf "%s%s", line, form == "data" ? "" : "\n"
            left -= length(line) + 1
        }
    }'
}
@NOISE@
[ @FORM@ != data ] || echo
echo "step $n of @STEPS@ done"
"""

_SHOW = r"""#!/bin/sh
# The steps that are done already: sh job/show
@GIT@
found=$(git log --reverse --first-parent --format=%s |
    sed -n 's/^step \([0-9][0-9]*\)$/step \1 of @STEPS@ done/p')
if [ -n "$found" ]; then
    echo "$found"
else
    echo "no step is done yet"
fi
"""
