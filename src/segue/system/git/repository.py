"""Runs git on a repository without running anything from the repository.

A repository's `.git/config` is written by whoever packed the folder, and by the agent that works
in it, and dozens of its keys name programs: filters, fsmonitor, textconv, the pager, remotes'
helpers; each new git version adds more. So they are not switched off one by one. Instead,
commands that look at files and objects get a separate git folder, with the repository's objects,
refs and index, and a config that contains only the few harmless values that decide how files
compare. Neither the repository's config nor the user's is read: git-lfs, for example, takes
commands from the repository if it runs.
"""

import os
import re
import select
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

MAX_BYTES = 16 << 20  # bytes of git's output

_QUIET = (
    *("--no-optional-locks", "--no-pager", "-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false", "-c", "color.ui=never"),
    *("-c", "status.relativePaths=false", "-c", "status.showStash=false"),
    *("-c", "protocol.allow=never"),
)
_WHERE = ("--show-toplevel", "--absolute-git-dir", "--git-common-dir")
_SWITCH = re.compile("(?i)true|yes|on|1|false|no|off|0|")
_HARMLESS = {
    **dict.fromkeys(("core.filemode", "core.ignorecase", "core.symlinks"), _SWITCH),
    **dict.fromkeys(("core.precomposeunicode", "core.trustctime", "index.sparse"), _SWITCH),
    **dict.fromkeys(("core.sparsecheckout", "core.sparsecheckoutcone"), _SWITCH),
    "core.autocrlf": re.compile(f"{_SWITCH.pattern}|input"),
    "core.eol": re.compile("(?i)lf|crlf|native"),
    "core.checkstat": re.compile("(?i)default|minimal"),
}
"""Settings for comparing files, and nothing else."""
_FORMATS = {
    "extensions.objectformat": re.compile("sha1|sha256"),
    "extensions.refstorage": re.compile("files|reftable"),
}
_LISTS = {"core.excludesfile": "ignore", "core.attributesfile": "attributes"}
"""Pattern files, and their default names."""


class GitOutput(Struct, frozen=True):
    """The output of git."""

    code: int | None = None  # None: it did not finish
    out: bytes = b""
    is_late: bool = False
    is_cut: bool = False  # it printed more than segue reads


class Repository(Struct, frozen=True):
    """The locations of a repository's parts."""

    top: str
    git_dir: str
    common_dir: str

    @contextmanager
    def apart(self, until: float) -> Iterator["Apart"]:
        """git with the files, objects, refs and index of this repository, and nothing that it could
        run. Raises OSError if no folder can be created for that."""
        with tempfile.TemporaryDirectory(prefix="segue-git-", ignore_cleanup_errors=True) as made:
            values = _config(self.top, until)
            folder = Path(made)
            self._furnish(folder, values)
            yield Apart(self.top, folder, self._environment(made), _options(values, self.top))

    def _furnish(self, folder: Path, values: Mapping[str, str]) -> None:
        formats = {k: v for k, v in values.items() if k in _FORMATS and _FORMATS[k].fullmatch(v)}
        lines = "".join(f"\t{key.partition('.')[2]} = {value}\n" for key, value in formats.items())
        version = f"\trepositoryformatversion = {1 if formats else 0}\n"
        (folder / "config").write_text(f"[core]\n{version}\tbare = false\n[extensions]\n{lines}")
        (folder / "HEAD").write_bytes(_head(Path(self.git_dir, "HEAD")))
        (folder / "info").mkdir()
        common, own = Path(self.common_dir), Path(self.git_dir)
        links = {
            **{name: common / name for name in ("refs", "packed-refs", "reftable", "shallow")},
            **{f"info/{name}": common / "info" / name for name in ("exclude", "attributes")},
            "info/sparse-checkout": own / "info" / "sparse-checkout",
            **{file.name: file for file in own.glob("sharedindex.*")},
        }
        for name, to in links.items():
            (folder / name).symlink_to(to)

    def _environment(self, folder: str) -> dict[str, str]:
        return environment() | {
            "GIT_DIR": folder,
            "GIT_WORK_TREE": self.top,
            "GIT_INDEX_FILE": os.path.join(self.git_dir, "index"),
            "GIT_OBJECT_DIRECTORY": os.path.join(self.common_dir, "objects"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "HOME": folder,  # for a git that does not support the variable above
            "XDG_CONFIG_HOME": folder,
        }


class Apart(Struct, frozen=True):
    """git on a repository, see `Repository.apart`."""

    top: str
    folder: Path
    env: dict[str, str]
    options: tuple[str, ...]

    def __call__(self, words: tuple[str, ...], until: float, stdin: bytes = b"") -> GitOutput:
        """Runs git; `until` is on the clock of time.monotonic()."""
        given = self.folder / "stdin"
        given.write_bytes(stdin)
        with given.open("rb") as file:
            return run(self.top, (*self.options, *words), until, self.env, file.fileno())

    def with_environment(self, more: Mapping[str, str]) -> "Apart":
        """The same with more variables, such as a separate index."""
        return Apart(self.top, self.folder, {**self.env, **more}, self.options)

    def with_options(self, *more: str) -> "Apart":
        """The same, with more of git's own options."""
        return Apart(self.top, self.folder, self.env, (*self.options, *more))


def find(cwd: str, until: float) -> Repository | GitOutput:
    """The repository that contains a folder, or git's error message. Only looks up its location,
    which runs nothing, whatever its config says."""
    output = run(cwd, ("rev-parse", *_WHERE), until, environment())
    lines = output.out.removesuffix(b"\n").split(b"\n")
    if output.code == 0 and len(lines) != len(_WHERE):  # a line feed in a path
        lines = []
        for word in _WHERE:
            output = run(cwd, ("rev-parse", word), until, environment())
            lines.append(output.out.removesuffix(b"\n"))
    if output.code != 0 or not all(lines):
        return output
    top, git_dir, common = (os.path.join(cwd, os.fsdecode(line)) for line in lines)
    return Repository(top, git_dir, os.path.abspath(common))


def environment() -> dict[str, str]:
    """The user's environment, without anything that would point git elsewhere, make it ask or let
    it fetch."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {
        **variables,
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",  # for a git that does not support the variable above
        "LC_ALL": "C",
    }


def run(
    cwd: str,
    words: tuple[str, ...],
    until: float,
    env: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
    *,
    with_errors: bool = False,
    quiet: tuple[str, ...] = _QUIET,
) -> GitOutput:
    """Runs git; at the deadline, it and everything that it started are ended. `with_errors`:
    include stderr. `quiet`: the options that keep a repository's programs from running."""
    program = _program()
    if program is None:
        return GitOutput()
    try:
        process = subprocess.Popen(  # noqa: S603 - nothing of it is anybody's text
            (program, *quiet, *words),
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if with_errors else subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError):
        return GitOutput()
    assert process.stdout is not None
    handle = process.stdout.fileno()
    ready = select.poll()
    ready.register(handle, select.POLLIN)
    out = bytearray()
    is_late = is_cut = False
    try:
        while True:
            left = until - time.monotonic()
            if left <= 0 or not ready.poll(left * 1000):
                is_late = True
                break
            data = os.read(handle, 1 << 16)
            if not data:
                break
            out += data
            if len(out) > MAX_BYTES:
                del out[MAX_BYTES:]  # the same for the same tree
                is_cut = True
                break
        if not is_late and not is_cut:
            try:
                code = process.wait(max(0.1, until - time.monotonic()))
                return GitOutput(code, bytes(out))
            except subprocess.TimeoutExpired:
                is_late = True
    finally:
        process.stdout.close()
        if process.returncode is None:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return GitOutput(None, bytes(out), is_late, is_cut)


def _program() -> str | None:
    return shutil.which("git", path=absolute(os.environ.get("PATH", os.defpath)))


def absolute(path: str) -> str:
    """A PATH without "." and the like, which would make a repository's files executable."""
    folders = [folder for folder in path.split(os.pathsep) if os.path.isabs(folder)]
    return os.pathsep.join(folders) or os.devnull


def _config(top: str, until: float) -> dict[str, str]:
    """All settings of a repository, the last value of each; listing them runs nothing."""
    output = run(top, ("config", "--list", "-z"), until, environment())
    found = {}
    for entry in output.out.split(b"\0"):
        key, line_feed, value = entry.partition(b"\n")
        name = key.decode("utf-8", "replace").lower()
        found[name] = os.fsdecode(value) if line_feed else "true"
    return found


def _options(values: Mapping[str, str], top: str) -> tuple[str, ...]:
    """The harmless ones among them, as options."""
    found = {k: v for k, v in values.items() if k in _HARMLESS and _HARMLESS[k].fullmatch(v)}
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    for key, name in _LISTS.items():
        path = os.path.expanduser(values.get(key, "")) or os.path.join(base, "git", name)
        if _is_file(path := os.path.join(top, path)):  # anything else might never end
            found[key] = path
    return tuple(word for key, value in found.items() for word in ("-c", f"{key}={value}"))


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _head(path: Path) -> bytes:
    """The line in HEAD, which may be a link in old repositories."""
    if path.is_symlink():
        return b"ref: " + os.fsencode(os.readlink(path)) + b"\n"
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        return os.read(handle, 4096)
    finally:
        os.close(handle)
