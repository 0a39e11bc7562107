"""The policy for each session that is watched, from the files as they were last found good."""

import os
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from segue import agents
from segue.core.policy import Policy
from segue.errors import ConfigError
from segue.io import settings as layered
from segue.io.layers import Scope
from segue.io.project import find_project, inside
from segue.io.settings import Settings
from segue.watch.messages import Messages

AUTO = ("auto_handoff", "auto_resume")

_Key = tuple[str, tuple[str, ...], bool]
"""What settings depend on: the project's file, the user's tables for folders, whether to act."""


class _Project:
    """Settings that are the same for all folders of one project. `acts`: as `--auto` says, unless
    the user's config says otherwise of this project, agent or model."""

    def __init__(self, settings: Settings, *, acts: bool, tables: Sequence[str] = ()) -> None:
        self.settings = settings
        self.messages: Messages | None = None
        self._acts, self._tables = acts, tables
        self._policies: dict[tuple[str, str], Policy] = {}

    def policy(self, agent: str, model: str) -> Policy:
        found = self._policies.get((agent, model))
        if found is None:
            found = self.settings.policy(agent, model)
            if self._acts:
                own = self._said_of(agents.canonical(agent), model)
                found = replace(found, **{key: True for key in AUTO if key not in own})
            self._policies[agent, model] = found
        return found

    def _said_of(self, agent: str, model: str) -> set[str]:
        """What the config says of these alone."""
        return {
            key
            for (kind, name), values in self.settings.scopes().items()
            if (kind == "agents" and name == agent)
            or (kind == "models" and model.startswith(name))
            or (kind == "projects" and name in self._tables)
            for key in values
        }


class Rules:
    """What the user wants in each project. A file that is wrong never counts: what was there
    before does, and `notes` says why, once. Raises ConfigError if the user's own config is wrong
    when it is made, and never again. Any thread may ask."""

    def __init__(
        self, env: Mapping[str, str], *, auto: bool = False, auto_in: Sequence[str] = ()
    ) -> None:
        self._env = env
        self._auto = auto
        self._auto_in = tuple(Path(os.path.realpath(folder)) for folder in auto_in)
        self.notes: deque[str] = deque(maxlen=200)
        """What is wrong, one line each; whoever says them takes them out."""
        self._general = self._load("/")
        self._general.messages = Messages(self._general.settings.prompts)
        self._shared: dict[_Key, _Project] = {}
        self._known: dict[str, _Project] = {}
        self._broken: set[str] = set()  # folders for which nothing but the user's config was read

    def policy(self, agent: str, model: str, cwd: str) -> Policy:
        """The policy for a session. Never raises."""
        return self._project(cwd).policy(agent, model)

    def messages(self, cwd: str) -> Messages:
        """What sessions of this project are told. A spoilt template does not count."""
        project = self._project(cwd)
        if project.messages is None:
            try:
                project.messages = Messages(project.settings.prompts)
            except ConfigError as fault:
                self.notes.append(f"{fault}; your own or the usual text is taken")
                project.messages = self._usual
        return project.messages

    def switched_on(self) -> str:
        """What the user's config has segue do by itself, and where; "" if nothing. What was said
        on the command line is not in it."""
        settings, found = self._general.settings, []
        for key in AUTO:
            places = ["in every project"] if getattr(settings.policy(), key) else []
            for scope, values in settings.scopes().items():
                if key in values and values[key].value:
                    places.append(_in_words(scope))
            if places:
                found.append(f"{key} {', '.join(places)}")
        return "; ".join(found)

    @property
    def homes(self) -> dict[str, list[str]]:
        """More folders with sessions, by agent."""
        return self._general.settings.homes

    def reload(self) -> list[str]:
        """Reads all again; what is wrong with it, and that the old one counts."""
        try:
            general = self._load("/")
            general.messages = Messages(general.settings.prompts)
        except ConfigError as fault:
            return [f"{fault}; what was set before still counts"]
        before, self._general, self._shared = self._known, general, {}
        known: dict[str, _Project] = {}
        said: dict[str, None] = {}
        for cwd, old in before.items():
            try:
                known[cwd] = self._find(cwd)
                self._broken.discard(cwd)
            except ConfigError as fault:
                known[cwd] = general if cwd in self._broken else old
                said[f"{fault}; what was set before still counts there"] = None
                continue
            if old.messages is None or known[cwd].messages is not None:
                continue
            try:
                known[cwd].messages = Messages(known[cwd].settings.prompts)
            except ConfigError as fault:
                known[cwd].messages = old.messages
                said[f"{fault}; what was said before still is"] = None
        self._known = known
        return list(said)

    @property
    def _usual(self) -> Messages:
        found = self._general.messages
        assert found is not None
        return found

    def _project(self, cwd: str) -> _Project:
        found = self._known.get(cwd)
        if found is None:
            try:
                found = self._find(cwd)
            except ConfigError as fault:
                note = f"{fault}; your own config counts there"
                if note not in self.notes:
                    self.notes.append(note)
                found = self._general
                self._broken.add(cwd)
            self._known[cwd] = found
        return found

    def _find(self, cwd: str) -> _Project:
        """Reads a project's settings, if no other folder of it was asked about before."""
        here = os.path.realpath(cwd or "/")
        file = find_project(Path(cwd or "/"), self._env, [])
        tables = tuple(
            name
            for kind, name in self._general.settings.scopes()
            if kind == "projects" and f"{here}/".startswith(name.rstrip("/") + "/")
        )
        key = (str(file or ""), tables, self._acts(here))
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = self._load(cwd or "/", tables)
        return found

    def _load(self, cwd: str, tables: Sequence[str] = ()) -> _Project:
        acts = self._acts(os.path.realpath(cwd))
        return _Project(layered.load(cwd, self._env), acts=acts, tables=tables)

    def _acts(self, here: str) -> bool:
        return self._auto and (
            not self._auto_in or any(inside(Path(here), folder) for folder in self._auto_in)
        )


def _in_words(scope: Scope) -> str:
    kind, name = scope
    return f"in {name}" if kind == "projects" else f"for {name}"
