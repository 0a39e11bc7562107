"""The layers: each imports only from those below it, also inside functions."""

import ast
from functools import cache
from pathlib import Path

import segue

PACKAGE = Path(segue.__file__).parent
LAYERS = (
    *(
        "errors",
        "core",
        "agents",
        "system",
        "sessions",
        "runs",
        "queue",
        "fleet",
        "watch",
        "reports",
    ),
    *("views", "mcp", "dashboard", "drill", "testing", "cli"),
)
"""From the ground up. `mcp`, `dashboard`, `drill` and `testing` stand beside each other."""
ENTRANCES = {"segue", "segue.__main__", "segue.start", "segue.api", "segue.client"}
"""The package's own doors: they may open any room."""
ALLOWED = {
    ("agents", "sessions"): "a drive reads its own sessions through the one finder",
    ("system", "sessions"): "a process is matched with the session files that it may have open",
    ("views", "drill"): "the table of a drill is a view of its plays",
}


def layer_of(module: str) -> str:
    parts = module.split(".")
    if parts[1:2] == ["agents"] and parts[-1] == "cast":
        return "drill"  # what a drill must know of an agent, kept in that agent's folder
    return parts[1]


def modules() -> dict[str, Path]:
    found = {}
    for file in PACKAGE.rglob("*.py"):
        name = ".".join(("segue", *file.relative_to(PACKAGE).with_suffix("").parts))
        found[name.removesuffix(".__init__")] = file
    return found


def imported(file: Path, known: dict[str, Path]) -> set[str]:
    """Modules of segue that a file imports, anywhere in it."""
    return {
        f"{module}.{name}" if name and f"{module}.{name}" in known else module
        for module, name in _imports(file)
    }


@cache
def _imports(file: Path) -> set[tuple[str, str]]:
    """Modules of segue, and the names that are taken from them."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {(node.module, alias.name) for alias in node.names}
    return {(module, name) for module, name in found if module.startswith("segue")}


def test_every_layer_imports_only_from_below() -> None:
    known = modules()
    wrong = []
    for name, file in known.items():
        if name in ENTRANCES:
            continue
        here = layer_of(name)
        for other in imported(file, known) - ENTRANCES:
            there = layer_of(other)
            if here == there or (here, there) in ALLOWED:
                continue
            if LAYERS.index(there) > LAYERS.index(here):
                wrong.append(f"{name} imports {other}")
    assert wrong == []


def test_the_daemon_and_the_mcp_server_need_no_command() -> None:
    known = modules()
    for name in known.keys() - ENTRANCES:
        if layer_of(name) in ("runs", "queue", "watch", "reports", "views", "mcp"):
            needed = imported(known[name], known) - ENTRANCES
            assert not [other for other in needed if layer_of(other) == "cli"], name


def test_no_exception_is_kept_that_nothing_needs() -> None:
    known = modules()
    used = {
        (layer_of(name), layer_of(other))
        for name, file in known.items()
        if name not in ENTRANCES
        for other in imported(file, known) - ENTRANCES
    }
    assert set(ALLOWED) - used == set()
