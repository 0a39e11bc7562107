"""A repository that wants to run programs: every way that git knows, each with a mark of its own.

armed = Armed(tmp_path)
armed.plant(*PLANTS)
...
assert armed.marks == set()
"""

import os
import pty
import subprocess
from dataclasses import dataclass
from pathlib import Path

CONTENT = "some text\n"


@dataclass(frozen=True)
class Plant:
    """One way. `config` and `files` name the program as @; `fires` is a command of git's that runs
    it, in the repository (of `at`), on a terminal if it must."""

    config: tuple[str, ...] = ()  # key=value
    files: tuple[tuple[str, str], ...] = ()
    programs: tuple[str, ...] = ()  # files that are the program itself
    attributes: str = ""
    fires: tuple[str, ...] = ()
    stdin: str = ""
    at: str = "."
    is_terminal: bool = False
    user: tuple[str, ...] = ()  # key=value in the user's own config


_LAZY = (
    "extensions.partialClone=origin",
    "remote.origin.promisor=true",
    "core.repositoryformatversion=1",
)
_STATUS = ("status",)
PLANTS = {
    "filter": Plant(("filter.e1.clean=@",), attributes="filter=e1", fires=_STATUS),
    "filter-process": Plant(
        ("filter.e2.process=@", "filter.e2.required=true"), attributes="filter=e2", fires=_STATUS
    ),
    "filter-of-users": Plant(user=("filter.lfs.clean=@",), attributes="filter=lfs", fires=_STATUS),
    "filter-included": Plant(
        ("include.path=more",),
        ((".git/more", '[filter "e3"]\n\tclean = @\n'),),
        attributes="filter=e3",
        fires=_STATUS,
    ),
    "filter-included-if": Plant(
        ("includeIf.gitdir:**.path=rest",),
        ((".git/rest", '[filter "e4"]\n\tclean = @\n'),),
        attributes="filter=e4",
        fires=_STATUS,
    ),
    "filter-of-worktree": Plant(
        ("extensions.worktreeConfig=true",),
        ((".git/config.worktree", '[filter "e5"]\n\tclean = @\n'),),
        attributes="filter=e5",
        fires=_STATUS,
    ),
    "filter-in-nested": Plant(
        files=(("nested/.git/more", '[filter "n"]\n\tclean = @\n'),), fires=_STATUS, at="nested"
    ),
    "fsmonitor-in-nested": Plant(
        files=(("nested/.git/more", "[core]\n\tfsmonitor = @\n"),), fires=_STATUS, at="nested"
    ),
    "filter-in-submodule": Plant(
        files=(("sub/.git/more", '[filter "n"]\n\tclean = @\n'),), fires=_STATUS
    ),
    "fsmonitor-in-submodule": Plant(
        files=(("sub/.git/more", "[core]\n\tfsmonitor = @\n"),), fires=_STATUS
    ),
    "fsmonitor": Plant(("core.fsmonitor=@",), fires=_STATUS),
    "hook": Plant(
        programs=tuple(
            f".git/hooks/{name}"
            for name in ("post-index-change", "pre-commit", "reference-transaction")
        ),
        fires=("update-index", "--force-write-index"),
    ),
    "hooks-path": Plant(
        ("core.hooksPath=hooks-of-mine",),
        programs=("hooks-of-mine/post-index-change", "hooks-of-mine/pre-auto-gc"),
        fires=("update-index", "--force-write-index"),
    ),
    "diff-external": Plant(("diff.external=@",), fires=("diff",)),
    "diff-command": Plant(("diff.e1.command=@",), attributes="diff=e1", fires=("diff",)),
    "textconv": Plant(("diff.e2.textconv=@",), attributes="diff=e2", fires=("diff",)),
    "merge-driver": Plant(("merge.e1.driver=@",), attributes="merge=e1"),
    "pager": Plant(("core.pager=@",), fires=("-p", "rev-parse", "HEAD"), is_terminal=True),
    "pager-of-status": Plant(("pager.status=@",), fires=_STATUS, is_terminal=True),
    "pager-of-config": Plant(("pager.config=@",), fires=("config", "--list"), is_terminal=True),
    "alias": Plant(("alias.status=!@", "alias.rev-parse=!@", "alias.e1=!@"), fires=("e1",)),
    "lazy-fetch": Plant(
        (*_LAZY, "remote.origin.url=.", "remote.origin.uploadpack=@"), fires=("diff",)
    ),
    "lazy-fetch-ssh": Plant(
        (*_LAZY, "remote.origin.url=ssh://none/x", "core.sshCommand=@"), fires=("diff",)
    ),
    "lazy-fetch-ext": Plant(
        (*_LAZY, "remote.origin.url=ext::@", "protocol.ext.allow=always"), fires=("diff",)
    ),
    "proxy": Plant(
        (*_LAZY, "remote.origin.url=git://none/x", "core.gitProxy=@"), fires=("diff",)
    ),
    "editor": Plant(("core.editor=@",), fires=("commit", "--allow-empty")),
    "sequence-editor": Plant(("sequence.editor=@",)),
    "gpg": Plant(("gpg.program=@", "commit.gpgSign=true", "log.showSignature=true"),
                 fires=("commit", "--allow-empty", "-m", "x")),
    "credential": Plant(
        ("credential.helper=@",), fires=("credential", "fill"), stdin="protocol=https\nhost=h\n\n"
    ),
    "askpass": Plant(
        ("core.askPass=@",), fires=("credential", "fill"), stdin="protocol=https\nhost=h\n\n"
    ),
    "alternate-refs": Plant(("core.alternateRefsCommand=@",)),
    "pack-objects": Plant(("uploadpack.packObjectsHook=@",)),
    "submodule-update": Plant(("submodule.sub.update=!@",)),
    "diff-filter": Plant(("interactive.diffFilter=@",)),
    "program": Plant(programs=("git",)),
}  # fmt: skip


class Armed:
    """A repository with plants, in a folder of its own; all its text files look touched."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.project = folder, folder / "project"
        self.home, self._marks = folder / "home", folder / "marks"
        for made in (self.project, self.home, self._marks):
            made.mkdir(parents=True, exist_ok=True)
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "TERM": "xterm"}
        self.env |= {f"GIT_{who}_NAME": "t" for who in ("AUTHOR", "COMMITTER")}
        self.env |= {f"GIT_{who}_EMAIL": "t@t" for who in ("AUTHOR", "COMMITTER")}

    @property
    def marks(self) -> set[str]:
        """The plants that ran."""
        return {file.name for file in self._marks.iterdir()}

    def git(self, *words: str, at: str = ".") -> str:
        done = subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *words],
            cwd=self.project / at,
            env=self.env,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def plant(self, *names: str) -> None:
        self.git("init", "-q", "-b", "main")
        for name in ("nested", "sub"):
            (self.project / name).mkdir()
            self.git("init", "-q", "-b", "main", at=name)
            self._put(f"{name}/.gitattributes", "*.txt filter=n\n")
            self._put(f"{name}/inner.txt", CONTENT)
            self.git("add", ".", at=name)
            self.git("commit", "-q", "-m", "1", at=name)
            self.git("config", "include.path", "more", at=name)
        self._put(".gitmodules", '[submodule "sub"]\n\tpath = sub\n\turl = ./sub\n')
        self._put(".gitattributes", "".join(f"{n}.txt {PLANTS[n].attributes}\n" for n in names))
        for name in ("plain", *names):
            self._put(f"{name}.txt", f"{name}: {CONTENT}")
        self.git("add", ".gitmodules", ".gitattributes", "sub")
        self.git("add", ":(glob)*.txt")
        self.git("commit", "-q", "-m", "first")
        oid = self.git("rev-parse", "HEAD:plain.txt").strip()
        for name in names:
            self._arm(name)
        for file in self.project.rglob("*.txt"):  # as an editor does that saves what is the same
            os.utime(file, ns=(5, 5))
        for name in ("plain", *(n for n in names if "diff=" in PLANTS[n].attributes)):
            self._put(f"{name}.txt", "other text\n")
        if any(name.startswith(("lazy", "proxy")) for name in names):
            (self.project / ".git" / "objects" / oid[:2] / oid[2:]).unlink()

    def fire(self, name: str) -> None:
        """The command of git's that runs a plant."""
        plant = PLANTS[name]
        words, cwd = ["git", *plant.fires], self.project / plant.at
        if not plant.is_terminal:
            subprocess.run(
                words, cwd=cwd, env=self.env, input=plant.stdin.encode(), capture_output=True,
                check=False, timeout=60,
            )  # fmt: skip
            return
        master, slave = pty.openpty()
        try:
            subprocess.run(
                words, cwd=cwd, env=self.env, stdin=slave, stdout=slave, stderr=slave,
                check=False, timeout=60,
            )  # fmt: skip
        finally:
            os.close(slave)
            os.close(master)

    def _arm(self, name: str) -> None:
        plant = PLANTS[name]
        program = self.folder / "programs" / name
        passes_on = "cat\n" if name.startswith("filter") else ""
        script = f"#!/bin/sh\n: > {self._marks / name}\n{passes_on}"
        _program(program, script)
        for key, value in (said.split("=", 1) for said in plant.config):
            self._set(self.project / ".git" / "config", key, value.replace("@", str(program)))
        for key, value in (said.split("=", 1) for said in plant.user):
            self._set(self.home / ".gitconfig", key, value.replace("@", str(program)))
        for file, text in plant.files:
            path = self.project / file
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as opened:
                opened.write(text.replace("@", str(program)))
        for file in plant.programs:
            _program(self.project / file, script)

    def _set(self, file: Path, key: str, value: str) -> None:
        section, _, name = key.rpartition(".")
        head, _, sub = section.partition(".")
        shown = f'[{head} "{sub}"]' if sub else f"[{head}]"
        with file.open("a") as opened:
            opened.write(f'{shown}\n\t{name} = "{value}"\n')

    def _put(self, name: str, text: str) -> None:
        (self.project / name).write_text(text)


def _program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)
