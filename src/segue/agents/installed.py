"""Finds the agents' programs: the native program, not the launcher that npm puts on the PATH.

A launcher is only second best: if it is killed, the agent keeps running, and some launchers
swallow signals.
"""

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_ARCHES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
ARCH = _ARCHES.get(platform.machine().lower(), platform.machine().lower())
"""The name of this machine in npm's packages."""
MACHINE = {"x64": "x86_64", "arm64": "aarch64"}.get(ARCH, ARCH)
"""Its name in compilers."""
SYSTEM = "darwin" if sys.platform == "darwin" else "linux"
"""The name of this system in npm's packages."""
NODES = (f"node-{SYSTEM}-{ARCH}/bin/node", "node/bin/node")
_BINARY = (
    b"\x7fELF",
    b"\xcf\xfa\xed\xfe",
    b"\xca\xfe\xba\xbe",
)  # Linux; macOS, of one or many CPUs


def native(
    agent: str, files: Sequence[str], env: Mapping[str, str], *, is_kept: bool = True
) -> str | None:
    """The agent's own binary: in the folder named by SEGUE_AGENTS, otherwise where PATH leads,
    otherwise (`is_kept`) in the folder that `scripts/agents` fills. `files` are patterns below a
    node_modules folder, the best first."""
    for folder in _folders(agent, env, is_kept):
        if found := _first(folder, files):
            return found
        if folder.is_file() and _is_binary(folder):
            return str(folder)
    return None


def script(
    agent: str, files: Sequence[str], env: Mapping[str, str], *, is_kept: bool = True
) -> str | None:
    """Like `native`, for the script of an agent that runs in node; None also if there is no
    node."""
    for folder in _folders(agent, env, is_kept):
        found = _first(folder, files)
        if found and _node(found, env.get("PATH")):
            return found
    return None


def node(program: str, path: str | None = None) -> str:
    """The node that runs an agent's script: the one that is installed with it, otherwise the one on
    the PATH."""
    return _node(program, path or os.environ.get("PATH")) or "node"


def command(
    agent: str, files: Sequence[str], env: Mapping[str, str], *, is_script: bool = False
) -> tuple[str, ...] | None:
    """The command that a run starts: the native program, or node with the script, as the user
    installed it; a launcher if there is nothing else."""
    if is_script:
        if found := script(agent, files, env, is_kept=False):
            return (node(found, env.get("PATH")), found)
    elif found := native(agent, files, env, is_kept=False):
        return (found,)
    launcher = shutil.which(agent, path=env.get("PATH", os.defpath))
    return (launcher,) if launcher else None


def _folders(agent: str, env: Mapping[str, str], is_kept: bool) -> Iterator[Path]:
    """Where to look: node_modules folders, and the program on the PATH itself."""
    if "SEGUE_AGENTS" in env:
        yield from _cached_modules(Path(env["SEGUE_AGENTS"], agent))
    on_path = shutil.which(agent, path=env.get("PATH", os.defpath))
    if on_path:
        real = Path(on_path).resolve()
        yield from (p / "node_modules" for p in real.parents if (p / "node_modules").is_dir())
        yield real
    if is_kept and "HOME" in env:
        cache = env.get("XDG_CACHE_HOME") or f"{env['HOME']}/.cache"
        yield from _cached_modules(Path(cache, "segue", "agents", agent))


def _cached_modules(folder: Path) -> Iterator[Path]:
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
            return opened.read(4) in _BINARY
    except OSError:
        return False


def _node(program: str, path: str | None) -> str | None:
    for folder in Path(program).parents:
        if folder.name == "node_modules" and (found := _first(folder, NODES)):
            return found
    return shutil.which("node", path=path)
