"""One layer of the settings: what a file, the environment or the flags say, typed and checked.

An error is reported in one line, with the file and line, the variable or the flag.
"""

import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Struct, field

from segue import agents
from segue.core.policy import Policy
from segue.errors import ConfigError
from segue.system.config import config, project_rules
from segue.system.config.project import inside

Kind = Literal["default", "preset", "user file", "project file", "environment", "flag"]
Scope = tuple[str, str]
"""("", ""): all; ("projects", "/home/me/shop"), ("agents", "claude"), ("models", "claude-opus"):
those alone."""

PROMPTS = (
    "checkpoint_request", "continuation", "resume", "check_failed", "after_compaction",
    "large_task", "high_context", "handoff_request", "handoff_resume",
)  # fmt: skip
EVERYWHERE: Scope = ("", "")
KEYS = {f.name: f.type for f in msgspec.structs.fields(Policy)}
RUN: dict[str, Any] = {
    "agent": str | list[str], "check": str, "share_tree": bool, "flags": dict[str, list[str]],
}  # fmt: skip
QUEUE: dict[str, Any] = {
    "jobs": Annotated[int, msgspec.Meta(ge=1)],
    "max_per_project": Annotated[int, msgspec.Meta(ge=1)] | None,
    "max_per_account": Annotated[int, msgspec.Meta(ge=1)] | None,
    "park_s": Annotated[float, msgspec.Meta(ge=0)],
}
WORKTREE: dict[str, Any] = {"setup": str, "link": list[str], "commit": bool}
_PROJECT_MAY = {
    "policy": (*project_rules.MAY, *config.SCOPES), "run": ("agent", "check"), "prompts": PROMPTS,
    "worktree": ("setup",),
}  # fmt: skip
"""What a repository may decide for whoever cloned it: nothing that names a program, changes what an
agent may do, or makes segue read elsewhere. A check or a setup applies once it is accepted."""
_OURS = ("SEGUE_HOME", "SEGUE_POLICY", "SEGUE_AGENT", "SEGUE_AGENTS", "SEGUE_RUN", "SEGUE_LEG")


class Source(Struct, frozen=True):
    """Where a value comes from; `name` is the preset, the file, the variable or the flag."""

    kind: Kind = "default"
    name: str = ""
    line: int | None = None

    @property
    def in_words(self) -> str:
        """The source in a few words; files are named elsewhere."""
        if self.kind in ("user file", "project file"):
            return f"{self.kind}, line {self.line}" if self.line else self.kind
        if self.kind == "environment":
            return self.name
        return f"{self.kind} {self.name}".rstrip()

    @property
    def at(self) -> str:
        """The place itself, for messages."""
        return f"{self.name}:{self.line}" if self.line else self.name or self.kind


class Flags(Struct, frozen=True, kw_only=True):
    """The settings from the command line; None: not given."""

    policy: str | None = None
    set: tuple[str, ...] = ()  # key=value
    agent: str | None = None
    check: str | None = None
    share_tree: bool | None = None
    project_check: bool = True  # whether the check of the project's file applies


class Value(Struct, frozen=True):
    value: Any
    source: Source


class Layer(Struct):
    """The settings of one source, typed. Keys are ("run", "agent"); in the policy, scope, key."""

    policy: dict[Scope, dict[str, Value]] = field(default_factory=dict)
    rest: dict[tuple[str, str], Value] = field(default_factory=dict)


class _Taker:
    """Adds the settings of one source to a layer, key by key. Raises ConfigError."""

    def __init__(self, kind: Kind, place: config.ConfigText | str) -> None:
        self.kind, self.place, self.layer = kind, place, Layer()

    def source(self, *keys: str) -> Source:
        if isinstance(self.place, str):
            return Source(self.kind, self.place)
        return Source(self.kind, str(self.place.path), config.line_of(self.place.text, keys))

    def fault(self, text: str, *keys: str) -> ConfigError:
        return ConfigError(f"{self.source(*keys).at}: {text}")

    def tables(self, data: Mapping[str, Any]) -> Layer:
        """All tables of a file, or those that one flag creates."""
        for name, table in data.items():
            if not isinstance(table, dict):
                raise self.fault(f"{name} must be a table: write [{name}]", name)
            take = {
                "policy": self.policy, "run": self.run, "agents": self.agents,
                "prompts": self.prompts, "homes": self.homes,
                "queue": self.queue, "worktree": self.worktree, "fleet": self.fleet,
                "otel": self.otel,
            }.get(name)  # fmt: skip
            if take is None:
                raise self.fault(config.unknown("table", name, (), config.TABLES), name)
            self.allow(name, table)
            take(table)
        return self.layer

    def allow(self, name: str, table: Mapping[str, Any]) -> None:
        """Raises ConfigError for keys that a project's file must not set."""
        if self.kind != "project file":
            return
        for key in table:
            known = name in ("homes", "agents", "queue", "worktree", "fleet", "otel")
            known = known or key in RUN  # a typo is reported like any other
            if known and key not in _PROJECT_MAY.get(name, ()):
                raise self.not_projects(name, key)

    def not_projects(self, *keys: str) -> ConfigError:
        """The error for a key that only the user may set."""
        shown = config.clean(".".join(keys[:-1]))
        return self.fault(
            f"{config.clean(keys[-1])} in [{shown}] is not allowed in a project's file, which comes"
            f" with the repository; set it in {config.user_file()}",
            *keys,
        )

    def policy(self, table: Mapping[str, Any]) -> None:
        plain = {key: value for key, value in table.items() if key not in config.SCOPES}
        self.policy_scope(EVERYWHERE, plain, ("policy",), (*KEYS, *config.SCOPES))
        for kind in config.SCOPES:
            for name, values in self.below(table, ("policy",), kind).items():
                keys = ("policy", kind, name)
                if not isinstance(values, dict):
                    raise self.fault(f"[{'.'.join(keys)}] must be a table", *keys)
                if kind == "projects":
                    own = self.project(name, keys)
                else:
                    own = agents.canonical(name) if kind == "agents" else name
                self.policy_scope((kind, own), values, keys, tuple(KEYS))

    def project(self, name: str, keys: tuple[str, ...]) -> str:
        """The folder of a scope, with links resolved."""
        if self.kind == "project file":
            raise self.not_projects("policy", "projects")
        folder = os.path.expanduser(name)
        if not os.path.isabs(folder) or "\0" in folder:
            text = (
                f"[{config.clean('.'.join(keys))}]: write an absolute path, or one that"
                f" begins with ~"
            )
            raise self.fault(text, *keys)
        return os.path.realpath(folder)

    def policy_scope(
        self, scope: Scope, table: Mapping[str, Any], keys: tuple[str, ...], known: Sequence[str]
    ) -> None:
        for key, value in table.items():
            if key not in KEYS:
                raise self.fault(config.unknown("key", key, keys, known), *keys, key)
            if self.kind == "project file" and key not in project_rules.MAY:
                raise self.not_projects(*keys, key)
            typed = None if value == "none" else value
            typed = self.convert(typed, KEYS[key], (*keys, key))
            if key == "handoff_folder":
                self.stays(typed, (*keys, key))
            if key == "name":
                config.check_preset(typed, self.source(*keys, key).at)
            found = self.layer.policy.setdefault(scope, {})
            found[key] = Value(typed, self.source(*keys, key))

    def run(self, table: Mapping[str, Any]) -> None:
        for key, value in table.items():
            if key not in RUN:
                raise self.fault(config.unknown("key", key, ("run",), RUN), "run", key)
            typed = self.convert(value, RUN[key], ("run", key))
            if key == "flags":
                for name, words in typed.items():
                    self.put("run.flags", agents.canonical(name), words, ("run", "flags", name))
            else:
                typed = self.listed(typed) if key == "agent" else typed
                self.put("run", key, typed, ("run", key))

    def listed(self, value: str | list[str]) -> tuple[str, ...]:
        """The named agents: one, or several in the order in which they relay the work."""
        words = value.split(",") if isinstance(value, str) else value
        names = [agents.canonical(word.strip()) for word in words]
        keys = ("run", "agent")
        is_file = self.kind in ("user file", "project file")
        what = "agent in [run]" if is_file else "the list of agents"
        if not all(names) and len(names) > 1:
            raise self.fault(f"{what} contains an empty name", *keys)
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise self.fault(f"{what} names {config.clean(twice)} twice", *keys)
        if len(names) > 1 and self.kind == "project file":
            raise self.fault(
                "agent in [run] may name one agent only in a project's file, which comes with the"
                f" repository: a list sends your work to more providers; set it in"
                f" {config.user_file()}",
                *keys,
            )
        return tuple(name for name in names if name)

    def queue(self, table: Mapping[str, Any]) -> None:
        for key, value in table.items():
            if key not in QUEUE:
                raise self.fault(config.unknown("key", key, ("queue",), QUEUE), "queue", key)
            typed = self.convert(None if value == "none" else value, QUEUE[key], ("queue", key))
            self.put("queue", key, typed, ("queue", key))

    def fleet(self, table: Mapping[str, Any]) -> None:
        config.fleet()  # read only where it is needed: it may contain a password

    def otel(self, table: Mapping[str, Any]) -> None:
        config.otel()  # read only where it is needed: its headers may contain a token

    def worktree(self, table: Mapping[str, Any]) -> None:
        plain = {key: value for key, value in table.items() if key != "projects"}
        self.worktree_scope("worktree", plain, ("worktree",))
        for name, values in self.below(table, ("worktree",), "projects").items():
            keys = ("worktree", "projects", name)
            if not isinstance(values, dict):
                raise self.fault(f"[{'.'.join(keys)}] must be a table", *keys)
            self.worktree_scope(f"worktree.projects.{self.project(name, keys)}", values, keys)

    def worktree_scope(self, place: str, table: Mapping[str, Any], keys: tuple[str, ...]) -> None:
        for key, value in table.items():
            if key not in WORKTREE:
                raise self.fault(config.unknown("key", key, keys, WORKTREE), *keys, key)
            typed = self.convert(value, WORKTREE[key], (*keys, key))
            for name in typed if key == "link" else ():
                inner = os.path.normpath(name)
                if not name or os.path.isabs(name) or inner.startswith("..") or inner == ".":
                    text = f"link in [{'.'.join(keys)}]: {config.clean(name)!r} must be the path of"
                    raise self.fault(f"{text} a file or folder in the repository", *keys, key)
            self.put(place, key, typed, (*keys, key))

    def homes(self, table: Mapping[str, Any]) -> None:
        if isinstance(self.place, str):
            raise self.fault("[homes] can only be set in a file")
        for name, places in config.check_homes(self.place).items():
            written = next(n for n in table if agents.canonical(n) == name)
            self.put("homes", name, places, ("homes", written))

    def agents(self, table: Mapping[str, Any]) -> None:
        from segue.agents.custom.drive import Custom, drive_of

        types = {f.name: f.type for f in msgspec.structs.fields(Custom)}
        for name, values in table.items():
            keys, shown = ("agents", name), config.clean(name)
            if not isinstance(values, dict):
                raise self.fault(f"[agents.{shown}] must be a table", *keys)
            for key in values:
                if key not in types:
                    raise self.fault(config.unknown("key", key, keys, types), *keys, key)
            found = {key: self.convert(values[key], types[key], (*keys, key)) for key in values}
            try:
                custom = Custom(**found)
                drive_of(name, custom)
            except ValueError as fault:
                raise self.fault(f"[agents.{shown}]: {fault}", *keys) from None
            except ConfigError as fault:
                raise self.fault(str(fault), *keys) from None
            self.put("agents", agents.canonical(name), custom, keys)

    def prompts(self, table: Mapping[str, Any]) -> None:
        base = Path.cwd() if isinstance(self.place, str) else self.place.path.parent
        for key, value in table.items():
            if key not in PROMPTS:
                raise self.fault(config.unknown("key", key, ("prompts",), PROMPTS), "prompts", key)
            path = base / Path(self.convert(value, str, ("prompts", key))).expanduser()
            self.stays(str(value), ("prompts", key))
            self.put("prompts", key, path, ("prompts", key))

    def stays(self, value: str, keys: tuple[str, ...]) -> None:
        """Refuses a path of a project's file that points outside the project."""
        if self.kind != "project file" or isinstance(self.place, str):
            return
        base = self.place.path.parent
        if not inside(base / os.path.expanduser(value), base):
            text = f"{keys[-1]} in [{'.'.join(keys[:-1])}] points outside the project"
            raise self.fault(f"{text}: {config.clean(value)}", *keys)

    def below(self, table: Mapping[str, Any], keys: tuple[str, ...], name: str) -> dict[str, Any]:
        found = table.get(name, {})
        if not isinstance(found, dict):
            raise self.fault(f"[{'.'.join((*keys, name))}] must be a table", *keys, name)
        return found

    def put(self, table: str, name: str, value: Any, keys: tuple[str, ...]) -> None:
        self.layer.rest[table, name] = Value(value, self.source(*keys))

    def convert(self, value: Any, kind: Any, keys: tuple[str, ...]) -> Any:
        """Converts a value to its type; the text of a flag or variable may be a number."""
        try:
            return msgspec.convert(value, kind, strict=not isinstance(self.place, str))
        except msgspec.ValidationError as fault:
            from segue.system.config.type_faults import plain

            text = config.clean(plain(fault, kind))
            raise self.fault(
                f"{config.clean(keys[-1])} in [{'.'.join(keys[:-1])}] {text}", *keys
            ) from None


def from_file(written: config.ConfigText, kind: Kind) -> Layer:
    """The settings of a file. Raises ConfigError, as the others do."""
    return _Taker(kind, written).tables(written.data)


def from_env(env: Mapping[str, str], notes: list[str]) -> Layer:
    """The settings of the environment: SEGUE_POLICY, SEGUE_AGENT, and SEGUE_HARD_MARK for
    hard_mark. Other variables may belong to other programs."""
    layer = Layer()
    known = {f"SEGUE_{key.upper()}": key for key in KEYS if key != "name"}
    for name, text in env.items():
        if not name.startswith("SEGUE_") or not text:
            continue
        taker = _Taker("environment", name)
        taker.layer = layer
        if name == "SEGUE_POLICY":
            taker.policy({"name": text})
        elif name == "SEGUE_AGENT":
            taker.run({"agent": text})
        elif name in known:
            taker.policy({known[name]: _value(text)})
        elif name not in _OURS and (hint := _near_variable(name, known)):
            notes.append(f"{config.clean(name)} in the environment is not read: {hint}")
    return layer


def _near_variable(name: str, known: Mapping[str, str]) -> str:
    hint = config.near(name.removeprefix("SEGUE_"), [*known.values(), "policy", "agent"])
    return hint and f"did you mean SEGUE_{hint.removeprefix('did you mean ').upper()}"


def from_flags(flags: Flags) -> Layer:
    """The settings of the command line."""
    layer = Layer()

    def taker(name: str) -> _Taker:
        made = _Taker("flag", name)
        made.layer = layer
        return made

    for given in flags.set:
        _set(given, taker)
    if flags.policy is not None:
        taker("--policy").policy({"name": flags.policy})
    for key in ("agent", "check", "share_tree"):
        if (value := getattr(flags, key)) is not None:
            taker(f"--{key.replace('_', '-')}").run({key: value})
    return layer


def _set(given: str, taker: Callable[[str], _Taker]) -> None:
    """One `--set key=value`; a bare key belongs to the policy, others are dotted as in a file."""
    key, equals, text = given.partition("=")
    key = key.strip()
    try:
        tables = tomllib.loads(f"{key} = 0") if equals and "\n" not in key else {}
    except (ValueError, RecursionError):
        tables = {}
    if not tables:
        raise ConfigError(f"--set {config.clean(given)}: write --set key=value")
    data = tables if isinstance(next(iter(tables.values())), dict) else {"policy": tables}
    place: dict[str, Any] = data
    while isinstance(inner := next(iter(place.values())), dict):
        place = inner
    place[next(iter(place))] = _value(text.strip())
    taker(f"--set {config.clean(key)}").tables(data)


def _value(text: str) -> Any:
    """A list or table if it is written as one, otherwise the text itself: the expected type
    decides."""
    if text[:1] in ("[", "{", '"', "'"):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            pass
    return text
