"""All settings, from all layers, and where each value comes from.

Flags override the environment, which overrides the project's file, which overrides the user's,
which overrides a preset. Within one layer, a model's value overrides its agent's, which
overrides the project's (of two folders, the inner one's), which overrides the general one.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from segue import agents
from segue.core.policy import Policy
from segue.errors import ConfigError
from segue.system.config import config, project_rules
from segue.system.config.layers import (
    EVERYWHERE,
    KEYS,
    QUEUE,
    RUN,
    WORKTREE,
    Flags,
    Layer,
    Scope,
    Source,
    Value,
    from_env,
    from_file,
    from_flags,
)
from segue.system.config.project import find_project

if TYPE_CHECKING:
    from segue.agents.custom.drive import Custom

__all__ = [
    "Flags", "QueueSettings", "Settings", "Source", "WorktreeSettings", "load", "policy_for",
]  # fmt: skip


class QueueSettings(Struct, frozen=True, kw_only=True):
    """How the queue is worked through."""

    jobs: int = 2  # tasks that run at once on this machine
    max_per_project: int | None = None
    max_per_account: int | None = None
    park_s: float = 30.0  # a run that waits longer gives its slot to another


class WorktreeSettings(Struct, frozen=True, kw_only=True):
    """How a task's worktree is created."""

    setup: str = ""  # a command that runs in it once
    link: tuple[str, ...] = ()  # untracked files of the repository that are linked into it
    commit: bool = True  # commits what a finished task left uncommitted


_MARKS = tuple(name for name in KEYS if name.endswith("_mark"))


class Settings(Struct, frozen=True, kw_only=True):
    """The settings. `sources` has every value by its dotted name: "policy.hard_mark", "run.agent"
    and, where they are set, "policy.agents.claude.hard_mark", "homes.claude", "agents.mine"."""

    layers: tuple[Layer, ...]
    cwd: str  # the folder for which they were loaded
    sources: dict[str, Source]
    user_file: Path
    project_file: Path | None = None
    agent: str = ""  # "": none was chosen
    relay: tuple[str, ...] = ()  # all named agents in order, if there are several
    check: str = ""
    share_tree: bool = False
    flags: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by agent
    homes: dict[str, list[str]] = field(default_factory=dict)
    agents: dict[str, "Custom"] = field(default_factory=dict)  # the user's own
    prompts: dict[str, Path] = field(default_factory=dict)
    queue: QueueSettings = QueueSettings()
    worktree: WorktreeSettings = WorktreeSettings()
    notes: tuple[str, ...] = ()
    """Valid but probably unintended settings: one line each."""

    def policy(self, agent: str = "", model: str = "") -> Policy:
        """The policy for an agent and a model, as far as they are known, in the folder for which
        the settings were loaded. Never raises: `load` has tried all of them, except for
        combinations that contradict each other only together; those get the general values."""
        return self._make_policy(agent, model)[0]

    def _make_policy(self, agent: str, model: str) -> tuple[Policy, dict[str, Source]]:
        try:
            return _make(self.layers, agent, model, self.cwd)
        except ConfigError:
            return _make(self.layers, "", "", "")

    def scopes(self) -> dict[Scope, dict[str, Value]]:
        """What is set for a project, an agent or models, each key by the highest layer that sets
        it."""
        found: dict[Scope, dict[str, Value]] = {}
        for layer in self.layers:
            for scope, values in layer.policy.items():
                if scope != EVERYWHERE:
                    found.setdefault(scope, {}).update(values)
        return found

    def policy_sources(self, agent: str = "", model: str = "") -> dict[str, Source]:
        """Where each value of that policy comes from."""
        return self._make_policy(agent, model)[1]


def load(
    cwd: str | os.PathLike[str], env: Mapping[str, str], flags: Flags | None = None
) -> Settings:
    """All layers, for work in that folder. Raises ConfigError with one line if any of them is
    invalid."""
    notes: list[str] = []
    user = config.read(config.user_file())
    project_path = find_project(Path(cwd), env, notes)
    layers = [from_file(user, "user file")]
    if project_path is not None:
        layers.append(from_file(config.read(project_path), "project file"))
        if flags is not None and not flags.project_check:
            layers[-1].rest.pop(("run", "check"), None)
    layers += [from_env(env, notes), from_flags(flags or Flags())]
    rest = {key: value for layer in layers for key, value in layer.rest.items()}
    here = os.path.realpath(cwd)
    _make(layers, "", "", "")
    _, sources = _make(layers, "", "", here)
    named = {f"policy.{key}": source for key, source in sources.items()}
    for layer in layers:
        for scope, values in layer.policy.items():
            # contradictions are reported now, not at three in the morning
            _make(layers, *_of(scope))
            if scope != EVERYWHERE:
                named |= {f"policy.{'.'.join(scope)}.{k}": v.source for k, v in values.items()}
    named |= {f"run.{key}": Source() for key in RUN if key != "flags"}
    named |= {f"queue.{key}": Source() for key in QUEUE}
    named |= {f"worktree.{key}": Source() for key in WORKTREE}
    named |= {".".join(key): value.source for key, value in rest.items()}
    tables = {
        table: _part(rest, table) for table in ("run", "run.flags", "homes", "agents", "prompts")
    }
    notes += _odd(layers, tables)
    named_agents: tuple[str, ...] = tables["run"].pop("agent", ())
    return Settings(
        layers=tuple(layers),
        cwd=here,
        sources=named,
        user_file=user.path,
        project_file=project_path,
        flags={name: tuple(words) for name, words in tables["run.flags"].items()},
        homes=tables["homes"],
        agents=tables["agents"],
        prompts=tables["prompts"],
        queue=QueueSettings(**_part(rest, "queue")),
        worktree=_worktree(rest, here, named),
        notes=tuple(notes),
        agent=next(iter(named_agents), ""),
        relay=named_agents if len(named_agents) > 1 else (),
        **tables["run"],
    )


def _part(rest: Mapping[tuple[str, str], Value], table: str) -> dict[str, Any]:
    return {name: value.value for (place, name), value in rest.items() if place == table}


def _worktree(
    rest: Mapping[tuple[str, str], Value], here: str, sources: dict[str, Source]
) -> WorktreeSettings:
    """What is set for all worktrees, and for those of this project; the inner folder takes
    precedence."""
    prefix = "worktree.projects."
    places = {place for place, _ in rest if place.startswith(prefix)}
    own = sorted((p for p in places if _is_below(here, p.removeprefix(prefix))), key=len)
    found: dict[str, Any] = {}
    for place in ("worktree", *own):
        for key, value in _part(rest, place).items():
            found[key] = tuple(value) if key == "link" else value
            sources[f"worktree.{key}"] = rest[place, key].source
    return WorktreeSettings(**found)


def policy_for(
    agent: str, model: str, cwd: str | os.PathLike[str], env: Mapping[str, str]
) -> Policy:
    """The policy for a session in that folder. Raises ConfigError, like `load`."""
    return load(cwd, env).policy(agent, model)


def _of(scope: Scope) -> tuple[str, str, str]:
    """The agent, model and folder to which a scope applies."""
    agent, model, folder = (
        scope[1] if scope[0] == kind else "" for kind in ("agents", "models", "projects")
    )
    return agent, model, folder


def _make(
    layers: Sequence[Layer], agent: str, model: str, folder: str
) -> tuple[Policy, dict[str, Source]]:
    """The policy that these layers add up to, and where its values come from."""
    chosen = _chosen(layers, agent, model, folder)
    named = chosen.get("name")
    preset = config.check_preset(*((named.value, named.source.at) if named else ("graduated", "")))
    usual = Policy()
    sources = {
        key: Source()
        if getattr(preset, key) == getattr(usual, key)
        else Source("preset", preset.name)
        for key in KEYS
    } | {key: value.source for key, value in chosen.items()}
    values = {key: getattr(preset, key) for key in KEYS}
    values |= {key: value.value for key, value in chosen.items()}
    try:
        return Policy(**values), sources
    except ValueError as fault:
        part = "_mark" if "marks" in str(fault) else ""
        origins = [
            f"{k} = {v.value} ({v.source.at})" for k, v in chosen.items() if k.endswith(part)
        ]
        raise ConfigError(f"[policy]: {fault}; set: {', '.join(origins)}") from None


def _chosen(layers: Iterable[Layer], agent: str, model: str, folder: str) -> dict[str, Value]:
    """The value that applies to each key; a project's file counts only where it is stricter."""
    found: dict[str, Value] = {}
    for layer in layers:
        for key, value in _applying(layer, agent, model, folder):
            if value.source.kind != "project file" or not _is_looser(key, value, found):
                found[key] = value
    return found


def _is_looser(key: str, value: Value, below: Mapping[str, Value]) -> bool:
    before = below[key].value if key in below else getattr(Policy(), key)
    return project_rules.is_looser(key, value.value, before)


def _applying(layer: Layer, agent: str, model: str, folder: str) -> Iterator[tuple[str, Value]]:
    """What a layer says for them, the more specific the later."""
    own = ("agents", agents.canonical(agent)) if agent else EVERYWHERE
    projects = sorted(
        (s for s in layer.policy if s[0] == "projects" and _is_below(folder, s[1])),
        key=lambda s: len(s[1]),
    )
    models = sorted(
        (s for s in layer.policy if s[0] == "models" and model.startswith(s[1])),
        key=lambda s: len(s[1]),
    )
    for scope in dict.fromkeys((EVERYWHERE, *projects, own, *models)):
        yield from layer.policy.get(scope, {}).items()


def _is_below(folder: str, project: str) -> bool:
    return folder == project or folder.startswith(project.rstrip("/") + "/")


def _odd(layers: Sequence[Layer], tables: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Settings that are allowed but probably a mistake."""
    known = {*agents.names(), *tables["agents"], *agents.stores()}
    for layer in layers:
        for (kind, name), values in layer.policy.items():
            for key in _MARKS:
                if key in values and values[key].value >= 2:
                    value, source = values[key].value, values[key].source
                    yield (
                        f"{source.at}: {key} = {value:g} is above 1, which turns it off;"
                        f" {value:g}% is {value / 100:g}"
                    )
            if kind == "agents" and name not in known and (hint := config.near(name, known)):
                yield f"[policy.agents.{config.clean(name)}] names an unknown agent: {hint}"
    for place, layer in enumerate(layers):
        for scope, values in layer.policy.items():
            below = _chosen(layers[:place], *_of(scope))
            for key, value in values.items():
                if value.source.kind == "project file" and _is_looser(key, value, below):
                    counts = below[key].value if key in below else getattr(Policy(), key)
                    yield (
                        f"{value.source.at}: {key} = {value.value} is ignored: a project's file"
                        f" can only be stricter than {counts}"
                    )
    for name in tables["run.flags"]:
        if name not in known and (hint := config.near(name, known)):
            yield f"[run.flags] {config.clean(name)} is not a known agent: {hint}"
