"""What `segue setup` registers, and what docs/mcp.md tells people to type, checked with the real
agents."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.playing import AGENTS_FOLDER, missing

from segue.agents import drives
from segue.drill import casts
from segue.drill.plays import enclosure

DOCS = Path(__file__).parents[3] / "docs"
BIN = Path(sys.executable).parent


def typed(agent: str, home: Path, *lines: str) -> str:
    """What a shell in a fresh home answers, with this agent on its PATH and no network."""
    env = {**os.environ, "SEGUE_AGENTS": AGENTS_FOLDER}
    drive = drives.find(agent)
    program = drive.find(env) if drive else None
    if program is None:
        missing(f"{agent} is not installed: {casts.find(agent).install}")
        raise AssertionError
    if reason := enclosure.why_not():
        missing(reason)
    launcher = home / "bin" / agent
    launcher.parent.mkdir(exist_ok=True)
    launcher.write_text(f'#!/bin/sh\nexec {shlex.join(program)} "$@"\n')
    launcher.chmod(0o755)
    done = subprocess.run(
        enclosure.command(["sh", "-ec", "\n".join(lines)]),
        cwd=home,
        env={"HOME": str(home), "PATH": f"{launcher.parent}:{BIN}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_claude_takes_the_line_of_the_docs_and_connects(own_home: Path) -> None:
    line = next(
        line.partition("#")[0].strip()
        for line in (DOCS / "mcp.md").read_text().splitlines()
        if line.startswith("claude mcp add")
    )
    said = typed("claude", own_home, line, "claude mcp list")
    assert "segue: segue mcp - ✔ Connected" in said.replace("✓", "✔"), said


@pytest.mark.parametrize(("agent", "connected"), [("codex", "enabled"), ("opencode", "connected")])
def test_an_agent_knows_the_server_that_setup_registered(
    agent: str, connected: str, own_home: Path
) -> None:
    said = typed(agent, own_home, f"segue setup {agent}", f"{agent} mcp list")
    (line,) = [each for each in said.splitlines() if "segue" in each and connected in each]
    assert "disabled" not in line
    assert "failed" not in line
