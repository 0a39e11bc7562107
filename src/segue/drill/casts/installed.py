"""Finds the real agents: the native program, not the launcher that npm puts on the PATH.

A launcher is no good for a drill: killed, it leaves the agent running, and some swallow signals.
"""

import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from segue.drill.casts import Stage

SCRIPT = "run `scripts/agents` in a checkout of segue"
_ARCHES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
ARCH = _ARCHES.get(platform.machine().lower(), platform.machine().lower())
"""As npm's packages call this machine."""
NODES = (f"node-linux-{ARCH}/bin/node", "node/bin/node")
_ELF = b"\x7fELF"


def native(agent: str, files: Sequence[str], env: Mapping[str, str]) -> str | None:
    """The agent's own binary: in the folder that SEGUE_AGENTS names, else what PATH leads to, else
    in the folder that `scripts/agents` fills unasked. `files` are patterns below a node_modules,
    the best first."""
    for folder in _folders(agent, env):
        if found := _first(folder, files):
            return found
        if folder.is_file() and _is_binary(folder):
            return str(folder)
    return None


def script(agent: str, files: Sequence[str], env: Mapping[str, str]) -> str | None:
    """The same for an agent that is a program for node; None too if there is no node."""
    for folder in _folders(agent, env):
        found = _first(folder, files)
        if found and _node(found, env.get("PATH")):
            return found
    return None


def node(program: str) -> str:
    """The node that such an agent runs in: the one beside it, if it brought one."""
    return _node(program, os.environ.get("PATH")) or "node"


def newest(files: Iterator[Path]) -> Path | None:
    """The file that was written last."""
    return max(files, key=lambda file: file.stat().st_mtime_ns, default=None)


def write(stage: Stage, path: str, content: object) -> None:
    """A private config file, as JSON if it is no text; and the folder for temporary files."""
    text = content if isinstance(content, str) else json.dumps(content, indent=1)
    file = stage.home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    (stage.home / "tmp").mkdir(exist_ok=True)


def _folders(agent: str, env: Mapping[str, str]) -> Iterator[Path]:
    """Where to look: folders called node_modules, and the program on the PATH itself."""
    if "SEGUE_AGENTS" in env:
        yield from _kept(Path(env["SEGUE_AGENTS"], agent))
    on_path = shutil.which(agent, path=env.get("PATH", os.defpath))
    if on_path:
        real = Path(on_path).resolve()
        yield from (p / "node_modules" for p in real.parents if (p / "node_modules").is_dir())
        yield real
    if "HOME" in env:
        cache = env.get("XDG_CACHE_HOME") or f"{env['HOME']}/.cache"
        yield from _kept(Path(cache, "segue", "agents", agent))


def _kept(folder: Path) -> Iterator[Path]:
    """All versions in a cache, the newest first."""
    versions = [v for v in folder.glob("[0-9]*") if v.is_dir()]
    for version in sorted(versions, key=lambda v: _order(v.name), reverse=True):
        yield version / "node_modules"


def _order(version: str) -> list[int]:
    return [int(part) if part.isdigit() else 0 for part in version.split(".")]


def _first(folder: Path, files: Sequence[str]) -> str | None:
    for pattern in files:
        for found in sorted(folder.glob(pattern)):
            if found.is_file():
                return str(found)
    return None


def _is_binary(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(4) == _ELF
    except OSError:
        return False


def _node(program: str, path: str | None) -> str | None:
    for folder in Path(program).parents:
        if folder.name == "node_modules" and (found := _first(folder, NODES)):
            return found
    return shutil.which("node", path=path)
