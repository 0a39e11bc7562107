"""Code that another process runs is a string here, which no type checker reads: its imports must
exist."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
_IMPORT = re.compile(r"\bfrom (segue(?:\.\w+)*) import (\w+)|\bimport (segue(?:\.\w+)+)")


def imports(file: Path) -> Iterator[tuple[str, str]]:
    """What is imported in the strings of a file: a module, and a name in it."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for module, name, alone in _IMPORT.findall(node.value):
                yield module or alone, name


def is_there(module: str, name: str) -> bool:
    try:
        found = import_module(module)
    except ModuleNotFoundError:
        return False
    return not name or hasattr(found, name) or find_spec(f"{module}.{name}") is not None


def test_what_is_imported_in_strings_is_there() -> None:
    found = {
        (str(file.relative_to(SOURCE)), module, name)
        for file in sorted((SOURCE / "segue").rglob("*.py"))
        for module, name in imports(file)
    }
    by = ("segue/watch/observe/viewer.py", "segue.system.config.prices", "window_tokens")
    assert by in found, "else this test looks at nothing"
    assert not {(file, module, name) for file, module, name in found if not is_there(module, name)}
    assert not is_there("segue.system", "prices")
