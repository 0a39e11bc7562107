"""No folder has more modules beside each other than one takes in at a look, and no module is long
without saying why."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "segue"
MAX_MODULES = 16
MAX_LINES = 400
REASON = "One file:"
"""What the reason begins with, in the first lines of a longer module."""


def modules(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.glob("*.py")) if file.name != "__init__.py"]


def test_no_folder_is_crowded() -> None:
    folders = {file.parent for file in SOURCE.rglob("*.py")}
    found = {str(f.relative_to(SOURCE)): len(modules(f)) for f in sorted(folders)}
    crowded = {folder: count for folder, count in found.items() if count > MAX_MODULES}
    assert not crowded, f"make folders inside, by what the modules are about: {crowded}"


def test_a_long_module_says_why_it_is_one() -> None:
    silent, short = {}, []
    for file in sorted(SOURCE.rglob("*.py")):
        text = file.read_text()
        lines = text.count("\n")
        says = REASON in (ast.get_docstring(ast.parse(text)) or "")
        if lines > MAX_LINES and not says:
            silent[str(file.relative_to(SOURCE))] = lines
        elif lines < MAX_LINES * 3 // 4 and says:
            short.append(str(file.relative_to(SOURCE)))
    assert not silent, f"split them, or say {REASON!r} and why in the docstring: {silent}"
    assert not short, f"they are no longer long: {short}"
