"""The dashboard's style sheet and script contain nothing that no page uses."""

import ast
import re
from functools import cache
from pathlib import Path

DASHBOARD = Path(__file__).parents[2] / "src" / "segue" / "dashboard"
_NAME = r"([A-Za-z][\w-]*)"


def strings(source: str) -> str:
    """All strings of a module but its docstrings, with {} for what is put in."""
    tree = ast.parse(source)
    docs = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values)
            found.append("".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docs:
            found.append(f'"{node.value}"')
    return "\n".join(found)


@cache
def pages() -> str:
    """Everything that may name a style: templates, the script, strings of the modules."""
    files = [*DASHBOARD.rglob("*.html"), *DASHBOARD.rglob("*.js")]
    modules = (strings(file.read_text()) for file in sorted(DASHBOARD.rglob("*.py")))
    return "\n".join([*(file.read_text() for file in sorted(files)), *modules])


def selectors(css: str) -> str:
    """A style sheet without comments, and without what is inside of its rules."""
    return re.sub(r"\{[^{}]*\}", "{}", re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL))


def is_used(name: str, text: str) -> bool:
    """Whether a page names it, or makes it from the beginning of its name and a value."""
    if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
        return True
    stem = name.rpartition("-")[0]
    while stem:
        if re.search(rf"(?<![\w-]){re.escape(stem)}-\{{", text):
            return True
        stem = stem.rpartition("-")[0]
    return False


def dead_styles(css: str, text: str) -> set[str]:
    """Classes, ids, attributes and variables that only the style sheet knows."""
    rules = selectors(css)
    found = {f".{name}" for name in re.findall(rf"\.{_NAME}", rules) if not is_used(name, text)}
    found |= {f"#{name}" for name in re.findall(rf"#{_NAME}", rules) if not is_used(name, text)}
    found |= {f"[{name}]" for name in re.findall(rf"\[{_NAME}", rules) if name not in text}
    variables = set(re.findall(r"(--[\w-]+)\s*:", css))
    return found | {name for name in variables if f"var({name}" not in css + text}


def dead_script(script: str) -> set[str]:
    """Functions and variables that their own definition alone names."""
    names = re.findall(r"\b(?:function|const|let)\s+(\w+)", script)
    return {name for name in names if len(re.findall(rf"\b{name}\b", script)) == 1}


def test_every_style_and_every_function_of_the_dashboard_is_used() -> None:
    todo_states = " completed in_progress "  # classes that are the states of the agents' todo lists
    css = (DASHBOARD / "static" / "style.css").read_text()
    assert dead_styles(css, pages() + todo_states) == set()
    assert dead_script((DASHBOARD / "static" / "app.js").read_text()) == set()


def test_every_template_is_used() -> None:
    names = {file.stem for file in (DASHBOARD / "templates").glob("*.html")}
    text = pages()
    assert {n for n in names if f'"{n}"' not in text and f'"{n}.html"' not in text} == set()


def test_it_is_seen_where_something_is_not_used() -> None:
    css = "/* .old */ .card, .zone-full > #gone { color: var(--ink); } :root { --ink: 1; --no: 2; }"
    assert dead_styles(css, '<li class="card zone-{{ zone }}">') == {"#gone", "--no"}
    assert dead_styles(css, '<li class="cards" id="gone">') == {".card", ".zone-full", "--no"}
    assert dead_script("function one() { return two; }\nconst two = 2, x = 1;") == {"one"}
