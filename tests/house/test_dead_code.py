"""What nothing in `src/` uses is not there: a function that only tests call is a rule that does not
run, and a setting that nothing reads is a promise that is not kept. By names alone, from the syntax
trees: quick, and blind to two things of one name."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import msgspec

from segue.core.policy import Policy

SOURCE = Path(__file__).parents[2] / "src" / "segue"
FOR_OTHERS = "testing"  # all of that folder is called by those who install segue
ALLOWED = {
    "make_context": "click calls it",
    "invoke": "click calls it",
    "get_command": "click calls it",
    "format_commands": "click calls it",
    "format_epilog": "click calls it",
    "_describe_range": "click calls it",
    "flatten_mapping": "PyYAML calls it",
    "list_resources": "the MCP SDK calls it",
    "startup": "uvicorn calls it",
    "generate_trace_id": "OpenTelemetry calls it",
    "generate_span_id": "OpenTelemetry calls it",
    "rebuild": "the proof that the log alone leads to every run (store/port)",
    "should_auto_resume": "of a public class, for those who use segue as a library",
}
_PLAIN = {
    "property",
    "staticmethod",
    "classmethod",
    "cached_property",
    "contextmanager",
    "overload",
}
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Survey(ast.NodeVisitor):
    """One walk over all files: what is defined, what is named, and in which definitions."""

    def __init__(self, folder: Path) -> None:
        self.defined: list[tuple[Definition, str]] = []
        self.uses: Counter[str] = Counter()
        self.own: dict[int, Counter[str]] = {}  # what a definition itself names
        self.constants: dict[str, str] = {}  # names that modules set, and where
        self.loaded: set[str] = set()  # names that are read, not only set
        self.read: set[str] = set()  # attributes
        self.mentioned: set[str] = set()  # those, strings, and what patterns look at
        self._inside: list[Definition] = []
        self._place = ""
        for file in sorted(folder.rglob("*.py")):
            self._place = str(file.relative_to(folder))
            module = ast.parse(file.read_bytes())
            for line in module.body:
                self._note_constants(line)
            self.visit(module)

    def _note_constants(self, line: ast.stmt) -> None:
        targets: list[ast.expr] = []
        if isinstance(line, ast.AnnAssign):
            targets = [line.target]
        elif isinstance(line, ast.Assign):
            targets = line.targets
        for node in (each for target in targets for each in ast.walk(target)):
            if isinstance(node, ast.Name) and not node.id.startswith("__"):
                self.constants[node.id] = f"{self._place}:{node.lineno}"

    def visit(self, node: ast.AST) -> None:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                self._named(name)
            case ast.Constant(value=str(name)) if name.isidentifier():
                self._named(name)  # as lazy imports and tables name things
                self.mentioned.add(name)
                self.loaded.add(name)
            case ast.MatchClass(kwd_attrs=names):
                self.mentioned |= set(names)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            self.loaded.add(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            self.mentioned.add(node.attr)
            self.loaded.add(node.attr)
            # That a setting is checked when it is set does not mean that anybody goes by it.
            is_check = any(each.name == "__post_init__" for each in self._inside)
            self.read |= set() if is_check else {node.attr}
        if not isinstance(node, Definition):
            self.generic_visit(node)
            return
        if not is_registered(node) and not self._place.startswith(f"{FOR_OTHERS}/"):
            self.defined.append((node, f"{self._place}:{node.lineno}"))
        self.own[id(node)] = Counter()
        self._inside.append(node)
        self.generic_visit(node)
        self._inside.pop()

    def _named(self, name: str) -> None:
        self.uses[name] += 1
        for each in self._inside:
            self.own[id(each)][name] += 1


@cache
def survey(folder: Path = SOURCE) -> Survey:
    return Survey(folder)


def is_registered(node: Definition) -> bool:
    """Whether a decorator gives it to somebody else: click, pytest, a table."""
    marks = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
    names = {m.attr if isinstance(m, ast.Attribute) else getattr(m, "id", "") for m in marks}
    return bool(names - _PLAIN)


def unused(seen: Survey) -> dict[str, str]:
    """Functions, methods and classes that nothing names but themselves, and where they are; also
    those that are only named by such."""
    uses, found = Counter(seen.uses), dict[str, str]()
    while True:
        more = [
            (node, place)
            for node, place in seen.defined
            if node.name not in found
            and not (node.name.startswith("__") and node.name.endswith("__"))
            and uses[node.name] <= seen.own[id(node)][node.name]
        ]
        if not more:
            return found
        for node, place in more:
            found[node.name] = place
            if node.name not in ALLOWED:
                uses -= seen.own[id(node)]


def test_everything_in_src_is_used_in_src() -> None:
    found = unused(survey())
    dead = {name: place for name, place in found.items() if name not in ALLOWED}
    assert not dead, f"called by nothing in src/: wire it, or delete it: {dead}"
    stale = set(ALLOWED) - set(found)
    assert not stale, f"used by now: take it out of ALLOWED: {stale}"


def test_every_constant_is_read() -> None:
    seen = survey()
    dead = {name: place for name, place in seen.constants.items() if name not in seen.loaded}
    assert not dead, f"set by a module and read by nothing: {dead}"


def test_every_setting_is_read() -> None:
    fields = {field.name for field in msgspec.structs.fields(Policy)}
    found = fields - survey().read
    assert not found, f"settings that change nothing: {sorted(found)}"


UNREAD = {
    "alternate": "of a pane: kept with the recorded screens",
    "answers": "of a request's part: kept for those who write a script for the model",
    "context_tokens": "of a public class (RunUsage)",
    "is_finished": "in the log of the scripted model's requests",
    "sent_bytes": "in the log of the scripted model's requests",
    "interrupts": "a figure of a handoff, in the daemon's log",
    "new_tokens": "a figure of a handoff, in the daemon's log",
    "trigger_tokens": "a figure of a handoff, in the daemon's log",
    "written_s": "a figure of a handoff, in the daemon's log",
    "keeper_pid": "which process holds a leg, for tests that kill it",
    "has_started": "of a tuple that is unpacked",
    "memo": "older versions of json ask for it",
}


def test_every_field_is_read() -> None:
    """By names alone; a string of the same name counts, because JSON is read that way."""
    fields: dict[str, str] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        place = file.relative_to(SOURCE)
        if FOR_OTHERS in place.parts:
            continue
        for node in ast.walk(ast.parse(file.read_bytes())):
            for line in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    fields[line.target.id] = f"{place}: {getattr(node, 'name', '')}"
    seen = survey()
    found = {name: where for name, where in fields.items() if name not in seen.mentioned}
    dead = {name: where for name, where in found.items() if name not in UNREAD}
    assert not dead, f"filled in and read by nothing in src/: {dead}"
    stale = set(UNREAD) - set(found)
    assert not stale, f"read by now: take it out of UNREAD: {stale}"


def test_it_is_seen_where_something_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        "def used(): helper()\n"
        "def helper(): return 'by_string'\n"
        "def by_string(): pass\n"
        "def alone(n): return alone(n - 1) + below()\n"
        "def below(): pass\n"
        "class Kept:\n"
        "    @property\n"
        "    def size(self): pass\n"
        "    def __len__(self): pass\n"
        "    def __post_init__(self): self.checked > 0\n"
        "LIMIT, FLOOR = 1, 2\n"
        "@registry.command('x')\n"
        "def given(): pass\n"
    )
    (tmp_path / "two.py").write_text(
        "from one import used, alone\nused()\nKept().hard = cap.soft + one.FLOOR\n"
    )
    seen = survey(tmp_path)
    assert set(unused(seen)) == {"alone", "below", "size"}
    assert set(seen.constants) - seen.loaded == {"LIMIT"}
    assert {"soft", "hard", "checked"} - seen.read == {"hard", "checked"}
