"""Which program an agent really is, and the script that installs them. Needs no agent and no
npm."""

import os
import subprocess
from pathlib import Path

import pytest

from segue.agents import drives
from segue.agents.installed import MACHINE
from segue.drill import casts
from segue.drill.casts.installed import ARCH

SCRIPT = Path(__file__).parents[2] / "scripts/agents"
NATIVE = {
    "claude": f"@anthropic-ai/claude-code-linux-{ARCH}/claude",
    "codex": f"@openai/codex-linux-{ARCH}/vendor/x-unknown-linux-musl/bin/codex",
    "opencode": f"opencode-linux-{ARCH}-baseline/bin/opencode",
}
BUNDLES = {
    "gemini": "@google/gemini-cli/bundle/gemini.js",
    "pi": "@earendil-works/pi-coding-agent/dist/bundle/cli.js",
}
OLDER = {
    "claude": "@anthropic-ai/claude-code/cli.js",
    "codex": f"@openai/codex/vendor/{MACHINE}-unknown-linux-musl/codex/codex",
    "gemini": "@google/gemini-cli/dist/index.js",
    "pi": "@mariozechner/pi-coding-agent/dist/cli.js",
}
LAUNCHERS = {
    "claude": "@anthropic-ai/claude-code/cli-wrapper.cjs",
    "codex": "@openai/codex/bin/codex.js",
    "opencode": "opencode-ai/bin/opencode",
    **BUNDLES,
}


def plant(file: Path, content: bytes = b"\x7fELF") -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    file.chmod(0o755)
    return str(file)


def launcher(agent: str, folder: Path, bin_folder: Path) -> None:
    """As npm leaves one on the PATH: a link to a program for node."""
    real = plant(folder / LAUNCHERS[agent], b"#!/usr/bin/env node\n")
    bin_folder.mkdir(exist_ok=True)
    (bin_folder / agent).symlink_to(real)


@pytest.mark.parametrize("agent", [*NATIVE, *BUNDLES])
def test_behind_npms_launcher_is_the_real_one(agent: str, tmp_path: Path) -> None:
    modules = tmp_path / "lib/node_modules"
    launcher(agent, modules, tmp_path / "bin")
    plant(tmp_path / "bin/node")
    path = {"PATH": str(tmp_path / "bin")}
    if agent in NATIVE:
        assert casts.find(agent).find(path) is None, "a launcher alone is no agent"
        plant(modules / NATIVE[agent])
    found = casts.find(agent).find(path)
    assert found == str(modules / (NATIVE | BUNDLES)[agent])


@pytest.mark.parametrize("agent", OLDER)
def test_older_versions_have_another_form(agent: str, tmp_path: Path) -> None:
    plant(tmp_path / "bin/node")
    program = plant(tmp_path / "agents" / agent / "0.9.0/node_modules" / OLDER[agent])
    env = {"PATH": str(tmp_path / "bin"), "SEGUE_AGENTS": str(tmp_path / "agents")}
    assert casts.find(agent).find(env) == program
    drive = drives.find(agent)
    assert drive is not None
    command = drive.find(env)
    assert command is not None
    assert command[-1] == program


@pytest.mark.parametrize("agent", NATIVE)
def test_npm_may_keep_it_below_the_launchers_own_package(agent: str, tmp_path: Path) -> None:
    modules = tmp_path / "lib/node_modules"
    launcher(agent, modules, tmp_path / "bin")
    package = (modules / LAUNCHERS[agent]).parent
    expected = plant(package / "node_modules" / NATIVE[agent])
    assert casts.find(agent).find({"PATH": str(tmp_path / "bin")}) == expected


@pytest.mark.parametrize("agent", NATIVE)
def test_a_binary_on_the_path_is_taken_as_it_is(agent: str, tmp_path: Path) -> None:
    real = plant(tmp_path / "share" / agent / "1.0")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / agent).symlink_to(real)
    assert casts.find(agent).find({"PATH": str(tmp_path / "bin")}) == real


@pytest.mark.parametrize("agent", NATIVE)
def test_the_named_cache_goes_before_the_path_and_the_path_before_the_default_cache(
    agent: str, tmp_path: Path
) -> None:
    named, default = tmp_path / "named", tmp_path / "home/.cache/segue/agents"
    old = plant(named / agent / "1.9.0/node_modules" / NATIVE[agent])
    new = plant(named / agent / "1.10.0/node_modules" / NATIVE[agent])
    kept = plant(default / agent / "1.0.0/node_modules" / NATIVE[agent])
    on_path = plant(tmp_path / "bin" / agent)
    env = {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "bin")}
    find = casts.find(agent).find
    assert find({**env, "SEGUE_AGENTS": str(named)}) == new != old
    assert find(env) == on_path
    assert find({**env, "PATH": ""}) == kept
    assert find({"PATH": ""}) is None


@pytest.mark.parametrize("agent", BUNDLES)
def test_a_program_for_node_needs_one_and_takes_the_one_that_it_brought(
    agent: str, tmp_path: Path
) -> None:
    modules = tmp_path / agent / "1.0.0/node_modules"
    program = plant(modules / BUNDLES[agent])
    env = {"SEGUE_AGENTS": str(tmp_path), "PATH": str(tmp_path / "bin")}
    cast = casts.find(agent)
    assert cast.find(env) is None
    brought = plant(modules / f"node-linux-{ARCH}/bin/node")
    assert cast.find(env) == program
    assert cast.version(program)[:2] == (brought, program)


NPM = """#!/bin/sh
echo "$@" >>"$NPM_LOG"
while [ "$1" != --prefix ]; do shift; done
mkdir -p "$2/node_modules/half"
[ -z "$NPM_FAILS" ] || { echo "npm error code E404" >&2; exit 1; }
"""


def install(folder: Path, *agents: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs the script with an npm that only says what it was asked for."""
    plant(folder / "bin/npm", NPM.encode())
    given = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "HOME": str(folder),
        "NPM_LOG": str(folder / "log"),
        **env,
    }
    return subprocess.run(
        [SCRIPT, *agents], env=given, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_script_installs_pinned_versions_once(tmp_path: Path) -> None:
    done = install(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    cache = tmp_path / ".cache/segue/agents"
    versions = {f"{v.parent.name} {v.name}" for v in cache.glob("*/*")}
    told = {" ".join(line.split()[:2]) for line in done.stdout.splitlines()[:-1]}
    assert versions == told
    assert len(versions) == 5
    asked = (tmp_path / "log").read_text().splitlines()
    assert all("@latest" not in line and "--ignore-scripts" in line for line in asked)

    again = install(tmp_path)
    assert again.stdout.count("is there") == 5
    assert len((tmp_path / "log").read_text().splitlines()) == len(asked) == 5


def test_the_script_takes_names_and_another_folder(tmp_path: Path) -> None:
    done = install(tmp_path, "pi", SEGUE_AGENTS=str(tmp_path / "elsewhere"))
    assert done.returncode == 0
    assert [f.name for f in (tmp_path / "elsewhere").iterdir()] == ["pi"]
    assert "node-linux" in (tmp_path / "log").read_text(), "pi needs a newer node than most have"


def test_a_failed_install_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    done = install(tmp_path, NPM_FAILS="1")
    assert done.returncode != 0
    assert "could not be had" in done.stderr
    assert "npm error code E404" in done.stderr
    assert not list((tmp_path / ".cache/segue/agents").glob("*/*"))
    assert not list((tmp_path / ".cache/segue/agents").glob("*/.*"))


def test_an_unknown_agent_is_reported(tmp_path: Path) -> None:
    done = install(tmp_path, "nobody")
    assert done.returncode != 0
    assert "one of claude codex opencode gemini pi" in done.stderr
