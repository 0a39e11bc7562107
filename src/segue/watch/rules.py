"""The policy for each watched session, from the last valid version of the config files, plus
what `segue watch --auto` adds."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from segue import agents
from segue.core.policy import Policy
from segue.errors import ConfigError
from segue.system.config import settings as layered
from segue.system.config.layers import Scope
from segue.system.config.policies import PolicyFinder, Project
from segue.system.config.project import inside
from segue.system.config.settings import Settings
from segue.watch.handoffs.messages import Messages

AUTO = ("auto_handoff", "auto_resume")


class _Watched(Project):
    """A project, with the templates for its sessions. `acts`: as `--auto` says, unless the user's
    config says otherwise for this project, agent or model."""

    def __init__(self, settings: Settings, *, acts: bool, tables: Sequence[str] = ()) -> None:
        super().__init__(settings)
        self.messages: Messages | None = None
        self._acts, self._tables = acts, tables

    def _make(self, agent: str, model: str) -> Policy:
        found = super()._make(agent, model)
        if not self._acts:
            return found
        own = self._said_of(agents.canonical(agent), model)
        return replace(found, **{key: True for key in AUTO if key not in own})

    def _said_of(self, agent: str, model: str) -> set[str]:
        """The settings that apply to this project, agent or model alone."""
        return {
            key
            for (kind, name), values in self.settings.scopes().items()
            if (kind == "agents" and name == agent)
            or (kind == "models" and model.startswith(name))
            or (kind == "projects" and name in self._tables)
            for key in values
        }


class Rules(PolicyFinder[_Watched]):
    """The user's settings in each project while the daemon runs: after a `reload`, an invalid file
    does not count and its previous version applies. The constructor raises ConfigError if the
    user's own config is invalid; nothing raises later. Thread-safe."""

    def __init__(
        self, env: Mapping[str, str], *, auto: bool = False, auto_in: Sequence[str] = ()
    ) -> None:
        self._auto = auto
        self._auto_in = tuple(Path(os.path.realpath(folder)) for folder in auto_in)
        super().__init__(env)
        self._general.messages = Messages(self._general.settings.prompts)

    def messages(self, cwd: str) -> Messages:
        """The templates for sessions of this project. An invalid template does not count."""
        project = self._project(cwd)
        if project.messages is None:
            try:
                project.messages = Messages(project.settings.prompts)
            except ConfigError as fault:
                self.notes.append(f"{fault}; using your own or the default text")
                project.messages = self._usual
        return project.messages

    @property
    def user_settings(self) -> Settings:
        """The user's own settings, without any project's."""
        return self._general.settings

    def switched_on(self) -> str:
        """What segue does by itself according to the user's config, and where; "" if nothing. The
        command line is not included."""
        settings, found = self._general.settings, []
        for key in (*AUTO, "relay"):
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
        """Reads all config files again; returns one line for each that is invalid, and whose
        previous version still applies."""
        try:
            general = self._load("/")
            general.messages = Messages(general.settings.prompts)
        except ConfigError as fault:
            return [f"{fault}; keeping the previous settings"]
        before, self._general, self._shared = self._known, general, {}
        known: dict[str, _Watched] = {}
        messages: dict[str, None] = {}
        for cwd, old in before.items():
            try:
                known[cwd] = self._find(cwd)
                self._broken.discard(cwd)
            except ConfigError as fault:
                known[cwd] = general if cwd in self._broken else old
                messages[f"{fault}; keeping the previous settings there"] = None
                continue
            if old.messages is None or known[cwd].messages is not None:
                continue
            try:
                known[cwd].messages = Messages(known[cwd].settings.prompts)
            except ConfigError as fault:
                known[cwd].messages = old.messages
                messages[f"{fault}; keeping the previous text"] = None
        self._known = known
        return list(messages)

    @property
    def _usual(self) -> Messages:
        found = self._general.messages
        assert found is not None
        return found

    def _load(self, cwd: str, tables: Sequence[str] = ()) -> _Watched:
        acts = self._acts(os.path.realpath(cwd))
        return _Watched(layered.load(cwd, self._env), acts=acts, tables=tables)

    def _traits(self, here: str) -> tuple[str, ...]:
        return ("acts",) if self._acts(here) else ("observes",)

    def _acts(self, here: str) -> bool:
        return self._auto and (
            not self._auto_in or any(inside(Path(here), folder) for folder in self._auto_in)
        )


def _in_words(scope: Scope) -> str:
    kind, name = scope
    return f"in {name}" if kind == "projects" else f"for {name}"
