"""No folder has too many modules side by side, every long module says why it is long, and
docs/architecture.md describes all folders."""

import ast
import re
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "segue"
TESTS = Path(__file__).parents[1]
MAX_MODULES = 15
MAX_LINES = 400
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
REASON = re.compile(r"one file(:|, because)", re.I)
"""How the docstring of a long module introduces the reason for its length."""


def modules(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.glob("*.py")) if file.name != "__init__.py"]


def test_no_folder_is_crowded() -> None:
    folders = {file.parent for file in SOURCE.rglob("*.py")}
    found = {str(f.relative_to(SOURCE)): len(modules(f)) for f in sorted(folders)}
    folders = {file.parent for file in TESTS.rglob("*.py") if TESTS / "data" not in file.parents}
    found |= {f"tests/{f.relative_to(TESTS)}": len(modules(f)) for f in sorted(folders)}
    crowded = {folder: count for folder, count in found.items() if count > MAX_MODULES}
    assert not crowded, f"make folders inside, by what the modules are about: {crowded}"


def test_no_two_test_files_have_the_same_name() -> None:
    """pytest imports test files by their name, and could not import the second one."""
    names = Counter(file.name for file in TESTS.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_a_long_module_says_why_it_is_one() -> None:
    silent, short = {}, []
    for file in sorted(SOURCE.rglob("*.py")):
        text = file.read_text()
        lines = text.count("\n")
        says = REASON.search(ast.get_docstring(ast.parse(text)) or "") is not None
        if lines > MAX_LINES and not says:
            silent[str(file.relative_to(SOURCE))] = lines
        elif lines < MAX_LINES // 2 and says:
            short.append(str(file.relative_to(SOURCE)))
    assert not silent, f"split them, or say 'All in one file:' and why in the docstring: {silent}"
    assert not short, f"they are no longer long: {short}"


def test_the_page_on_the_architecture_names_every_folder_and_none_that_is_not_there() -> None:
    page = PAGE.read_text()
    (tree,) = re.findall(r"src/segue/\n(.*?)```", page, re.S)
    named = set(re.findall(r"^  (\w+)/ ", tree, re.M))
    there = {folder.name for folder in SOURCE.iterdir() if (folder / "__init__.py").exists()}
    assert there - named == set()
    assert {folder for folder in named if not (SOURCE / folder).is_dir()} == set()
    core = {folder.name for folder in (SOURCE / "core").iterdir() if folder.is_dir()}
    assert {folder for folder in core - {"__pycache__"} if f"{folder} (" not in tree} == set()
    paths = re.findall(
        r"\b((?:core|agents|system|sessions|runs|watch|views|cli|mcp)(?:/[a-z_]+)+)", page
    )
    missing = {p for p in paths if not ((SOURCE / p).is_dir() or (SOURCE / f"{p}.py").exists())}
    assert not missing
