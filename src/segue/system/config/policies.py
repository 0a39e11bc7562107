"""Decides which policy applies to a session. This is the only place that does: commands, the
daemon, hooks, the status line, MCP and the API all use it, so they cannot disagree.

The policy follows from the session alone: its agent, its model and its own folder (with the
`.segue.toml` there), never from the folder in which a command runs. What follows from the policy
(the window, the zone and what still fits) is in `sessions/survey` and `core/sessions/types`.
"""

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from segue.core.policy import Policy
from segue.errors import ConfigError
from segue.system.config import settings as layered
from segue.system.config.project import find_project
from segue.system.config.settings import Settings

PolicyFor = Callable[[str, str, str], Policy]
"""The policy for an agent, a model and a folder. Called on every pass, so it must be fast."""


class Project:
    """Settings that are the same for all folders of one project."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._policies: dict[tuple[str, str], Policy] = {}

    def policy(self, agent: str, model: str) -> Policy:
        """The policy for that agent and model; created once."""
        found = self._policies.get((agent, model))
        if found is None:
            found = self._policies[agent, model] = self._make(agent, model)
        return found

    def _make(self, agent: str, model: str) -> Policy:
        return self.settings.policy(agent, model)


P = TypeVar("P", bound=Project)


class PolicyFinder(Generic[P]):
    """The user's rules in each project, from all layers. An invalid project file does not apply,
    and `notes` says why, once. The constructor raises ConfigError if the user's own config is
    invalid; nothing raises later. Thread-safe."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self.notes: deque[str] = deque(maxlen=200)
        """What is wrong, one line each; the caller that prints them removes them."""
        self._general = self._load("/")
        self._shared: dict[tuple[str, ...], P] = {}
        self._known: dict[str, P] = {}
        self._broken: set[str] = set()  # folders to which only the user's config applies

    def policy(self, agent: str, model: str, cwd: str) -> Policy:
        """The policy for a session. Never raises."""
        return self._project(cwd).policy(agent, model)

    def _project(self, cwd: str) -> P:
        found = self._known.get(cwd)
        if found is None:
            try:
                found = self._find(cwd)
            except ConfigError as fault:
                note = f"{fault}; your own config applies there"
                if note not in self.notes:
                    self.notes.append(note)
                found = self._general
                self._broken.add(cwd)
            self._known[cwd] = found
        return found

    def _find(self, cwd: str) -> P:
        """Reads a project's settings, unless another folder of it was looked up before."""
        here = os.path.realpath(cwd or "/")
        file = find_project(Path(cwd or "/"), self._env, [])
        tables = tuple(
            name
            for kind, name in self._general.settings.scopes()
            if kind == "projects" and f"{here}/".startswith(name.rstrip("/") + "/")
        )
        key = (str(file or ""), *self._traits(here), *tables)
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = self._load(cwd or "/", tables)
        return found

    def _load(self, cwd: str, tables: Sequence[str] = ()) -> P:
        """`tables`: the folders of [policy.projects] that contain this one."""
        raise NotImplementedError

    def _traits(self, here: str) -> tuple[str, ...]:
        """What else the settings depend on there, besides the project's file and the tables."""
        return ()


class Policies(PolicyFinder[Project]):
    """For one pass over the sessions: what the files say now."""

    def _load(self, cwd: str, tables: Sequence[str] = ()) -> Project:
        return Project(layered.load(cwd, self._env))
