"""The rules of the house, where a program can see them."""

import ast
import json
import sys
from pathlib import Path

import pytest

import segue
from segue import agents

PACKAGE = Path(segue.__file__).parent
CORE = sorted((PACKAGE / "core").glob("*.py"))
IMPURE = {"os", "sys", "time", "random", "uuid", "pathlib", "io", "subprocess", "socket", "logging"}
CLOCKS = {"now", "today", "utcnow", "time"}


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("file", CORE, ids=lambda f: f.name)
def test_the_core_touches_nothing_of_the_world(file: Path) -> None:
    used = imports(file)
    assert not {name.partition(".")[0] for name in used} & IMPURE
    assert not [n for n in used if n.startswith("segue") and not n.startswith("segue.core")]


@pytest.mark.parametrize("file", CORE, ids=lambda f: f.name)
def test_the_core_reads_no_clock(file: Path) -> None:
    calls = [
        node.func.attr
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    assert not CLOCKS & set(calls)


def test_nobody_asks_which_agent_it_is() -> None:
    """No comparison with an agent's name outside that agent's file."""
    guilty = []
    for file in PACKAGE.rglob("*.py"):
        if "agents" in file.parts and file.stem in agents.BUILT_IN:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Compare):
                named = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
                guilty += [(file.name, node.lineno) for n in named if n in agents.BUILT_IN]
    assert not guilty


def test_importing_segue_loads_nothing_heavy() -> None:
    import subprocess

    code = "import sys, segue, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert not {"click", "msgspec", "re2", "yaml", "logging", "typing"} & loaded


def test_the_version_loads_no_command() -> None:
    import subprocess

    code = (
        "import sys\nfrom segue.cli import cli\n"
        "try: cli(['--version'])\n"
        "except SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith('segue.') or m in ('msgspec', 're2')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"segue {segue.__version__}", "['segue.cli']"]


def test_public_names_are_there() -> None:
    from segue import Policy, Reading, Stop, StopReason, Zone, classify

    assert all((Policy, Reading, Stop, StopReason, Zone, classify))
    with pytest.raises(AttributeError):
        _ = segue.nothing


@pytest.mark.parametrize("name", agents.BUILT_IN)
def test_every_built_in_agent_has_a_profile_of_its_name(name: str) -> None:
    profile = agents.find(name)
    assert profile is not None
    assert profile.name == name
    assert agents.find(name.upper()) is profile


def test_an_unknown_agent_has_no_profile_and_aliases_lead_to_one() -> None:
    assert agents.find("nobody") is None
    assert agents.find("claude-code") is agents.find("claude")
    assert agents.find("kilo") is agents.find("opencode")
