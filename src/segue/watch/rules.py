"""The policy for each session that is watched, from the files as they were last found good."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from segue.core.policy import Policy
from segue.errors import ConfigError
from segue.io import settings as layered
from segue.io.layers import Flags
from segue.io.project import inside
from segue.io.settings import Settings
from segue.watch.messages import Messages

AUTO = ("auto_handoff=true", "auto_resume=true")


class Rules:
    """What the user wants in each project. A file that is wrong never counts: what was there
    before does, and `notes` says why, once."""

    def __init__(
        self, env: Mapping[str, str], *, auto: bool = False, auto_in: Sequence[str] = ()
    ) -> None:
        self._env = env
        self._auto = auto
        self._auto_in = tuple(Path(os.path.realpath(folder)) for folder in auto_in)
        self._known: dict[str, Settings] = {}
        self._messages: dict[str, Messages] = {}
        self.notes: list[str] = []
        self._general = self._load("/")  # raises: a daemon does not start on a broken config

    def policy(self, agent: str, model: str, cwd: str) -> Policy:
        """The policy for a session. Never raises."""
        return self._settings(cwd).policy(agent, model)

    def messages(self, cwd: str) -> Messages:
        """What sessions of this project are told. A spoilt template does not count."""
        found = self._messages.get(cwd)
        if found is None:
            try:
                found = Messages(self._settings(cwd).prompts)
            except ConfigError as fault:
                self.notes.append(f"{fault}; the usual text is taken")
                found = Messages({})
            self._messages[cwd] = found
        return found

    @property
    def homes(self) -> dict[str, list[str]]:
        """More folders with sessions, by agent."""
        return self._general.homes

    def reload(self) -> list[str]:
        """Reads all again; what is wrong with it, and that the old one counts."""
        try:
            self._general = self._load("/")
        except ConfigError as fault:
            return [f"{fault}; what was set before still counts"]
        self._messages.clear()
        said = []
        for cwd in list(self._known):
            try:
                self._known[cwd] = self._load(cwd)
            except ConfigError as fault:
                said.append(f"{fault}; what was set before still counts there")
        return said

    def _settings(self, cwd: str) -> Settings:
        found = self._known.get(cwd)
        if found is None:
            try:
                found = self._load(cwd or "/")
            except ConfigError as fault:
                self.notes.append(f"{fault}; your own config counts there")
                found = self._general
            self._known[cwd] = found
        return found

    def _load(self, cwd: str) -> Settings:
        acts = self._auto and (
            not self._auto_in
            or any(inside(Path(os.path.realpath(cwd)), folder) for folder in self._auto_in)
        )
        return layered.load(cwd, self._env, Flags(set=AUTO if acts else ()))
