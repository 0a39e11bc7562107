"""The architecture rules that a program can check."""

import ast
import json
import sys
from pathlib import Path

import pytest
from support.paths import ROOT

import segue
from segue import agents

PACKAGE = Path(segue.__file__).parent
CORE = sorted((PACKAGE / "core").rglob("*.py"))
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


def test_what_a_tool_printed_reaches_the_digest_and_nothing_that_judges_a_stop() -> None:
    """An agent may read a repository full of "rate limit exceeded"."""
    readers = set()
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text()
        for node in ast.walk(ast.parse(text if ".printed" in text else "")):
            if isinstance(node, ast.Attribute) and node.attr == "printed":
                readers.add(file.relative_to(PACKAGE).as_posix())
    measures = {"core/runs/idle.py", "core/sessions/forecasts/pending.py"}  # a checksum, a length
    repeats = {"runs/legs/trackers/last_output.py"}  # to a session that may have nothing of it
    assert readers == {"core/handoffs/digest/builder.py", *measures, *repeats}


def test_nobody_asks_which_agent_it_is() -> None:
    """No comparison with an agent's name outside that agent's folder."""
    guilty = []
    for file in PACKAGE.rglob("*.py"):
        if file.parent.parent.name == "agents" and file.parent.name in agents.BUILT_IN:
            continue
        text = file.read_text()
        is_named = any(name in text for name in agents.BUILT_IN)
        for node in ast.walk(ast.parse(text if is_named else "")):
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
    assert done.stdout.splitlines() == [
        f"segue {segue.__version__}",
        "['segue.views', 'segue.views.streams', 'segue.cli']",  # which also `--version` prints to
    ]


def test_a_scan_that_finds_nothing_new_loads_no_parser_and_no_prices() -> None:
    import subprocess

    code = (
        "import sys\nfrom segue.cli import cli\n"
        "try: cli(['scan', '--json'])\n"
        "except SystemExit: pass\n"
        "told = ('msgspec', 're2', 'genai_prices', 'segue.core.stops')\n"
        "print([name for name in told if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_no_command_loads_the_mcp_sdk_or_apprise_before_it_is_used() -> None:
    """They come with every install and take most of a second: only who needs them waits."""
    import subprocess

    code = (
        "import sys\nfrom segue.cli import COMMANDS, cli\n"
        "for name in COMMANDS: cli.get_command(None, name)\n"
        "import segue.system.notices, segue.watch.daemon, segue.client\n"
        "print([m for m in ('mcp', 'apprise', 'pydantic', 'requests') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


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


def test_no_test_imports_another() -> None:
    """What several need is in tests/support."""
    folder = ROOT / "tests"
    tests = {
        ".".join(file.relative_to(folder).with_suffix("").parts)
        for file in folder.rglob("test_*.py")
        if "data" not in file.parts
    }
    found = [
        f"{file.relative_to(folder)} imports {name}"
        for file in folder.rglob("*.py")
        if "data" not in file.parts
        for name in imports(file) & (tests | {name.rpartition(".")[2] for name in tests})
    ]
    assert found == []
