"""What the user asks for when a run begins: the task, the agents, and the policy, flags and check
that apply to them."""

import json
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from segue.agents import canonical
from segue.agents.contracts.drive import Drive
from segue.agents.shared.flags import added
from segue.core.policy import Policy
from segue.core.runs.types import (
    Abilities,
    Member,
    Origin,
    Run,
)
from segue.errors import InputError
from segue.runs.starting.installed_agents import NoAgent, driven
from segue.system.config import trust
from segue.system.config.settings import Settings

_MODEL_FLAGS = ("--model", "-m")
"""What all agents call it."""


class CheckNotAccepted(InputError):  # noqa: N818
    """The check comes from a project's file, and the user has not accepted it."""


class RunRequest(Struct, frozen=True, kw_only=True):
    """Everything that a run needs to know about what the user wants."""

    task: str
    agent: str
    command: tuple[str, ...]
    drive: Drive
    cwd: str
    policy: Policy
    flags: tuple[str, ...] = ()
    check: str = ""
    share_tree: bool = False
    origin: Origin | None = None  # the session that it continues
    additions: tuple[str, ...] = ()  # what the user added to the task in an earlier run of it
    successors: tuple["RunRequest", ...] = ()
    """The same task for each other agent of the list, in order: who may take it over."""

    @property
    def all(self) -> tuple["RunRequest", ...]:
        """One request for each agent of the list."""
        return (self, *self.successors)


def request(
    task: str,
    agent: str,
    settings: Settings,
    env: Mapping[str, str],
    *,
    cwd: str,
    flags: Sequence[str] | None = None,
    policy: Policy | None = None,
    dry: bool = False,
    successors: Sequence[str] = (),
) -> RunRequest:
    """The complete request: what the user wants, with the rest from the settings. `flags` are
    only for `agent`; `successors` may take over, each with its own configured flags. Raises
    InputError, ConfigError, and CheckNotAccepted unless nothing is to be run."""
    if not dry and needs_yes(settings):
        raise CheckNotAccepted(
            f"{settings.sources['run.check'].at} sets a check that you have not accepted:"
            f" {literal(settings.check)}; accept it with --trust-check, or leave it out with"
            " --no-project-check"
        )
    name = canonical(agent)
    if successors:
        _must_be_there((agent, *successors), settings, env)
    drive, command = driven(name, env, _agent_source(agent, settings))
    own = settings.flags.get(name, ()) if flags is None else flags
    if fault := drive.refuses(own):
        raise InputError(f"{name}: {fault}")
    return RunRequest(
        task=task,
        agent=name,
        command=command,
        drive=drive,
        cwd=cwd,
        policy=policy or policy_for(settings, name, own),
        flags=tuple(own),
        check=settings.check,
        share_tree=settings.share_tree,
        successors=tuple(
            request(task, each, settings, env, cwd=cwd, policy=policy, dry=True)
            for each in successors
        ),
    )


def _must_be_there(names: Sequence[str], settings: Settings, env: Mapping[str, str]) -> None:
    """Raises NoAgent that names all agents that cannot be run, so that one look is enough."""
    faults = []
    for name in names:
        try:
            driven(canonical(name), env, _agent_source(name, settings))
        except NoAgent as fault:
            faults.append(str(fault))
    if faults:
        raise NoAgent("; ".join(faults))


def with_flags(
    drive: Drive, agent: str, before: Sequence[str], more: Sequence[str]
) -> tuple[str, ...]:
    """A run's flags plus those the user adds now. Raises InputError."""
    found = added(before, more, drive)
    if fault := drive.refuses(found):
        raise InputError(f"{agent}: {fault}")
    return found


def needs_yes(settings: Settings) -> bool:
    """Whether the check comes from a project's file and the user has yet to accept exactly this
    command."""
    if not settings.check or settings.sources["run.check"].kind != "project file":
        return False
    assert settings.project_file is not None
    return not trust.is_accepted(settings.project_file.parent, settings.check)


def literal(command: str) -> str:
    """A command on one line, with everything in it made visible: nobody should accept what a
    terminal hides."""
    return command if command.isascii() and command.isprintable() else json.dumps(command)


def _agent_source(agent: str, settings: Settings) -> str:
    """Where the user named this agent."""
    source = settings.sources.get("run.agent")
    if source is None or agent not in (settings.agent, *settings.relay) or source.kind == "default":
        return "agent"
    is_file = source.kind in ("user file", "project file")
    return f"{source.at}: agent =" if is_file else source.at


def policy_for(settings: Settings, agent: str, flags: Sequence[str]) -> Policy:
    """The policy for this agent and, if its flags name a model, for that model. A model that
    only the agent's own config names is unknown before the agent runs."""
    model = ""
    for place, word in enumerate(flags):
        name, has_value, value = word.partition("=")
        if name in _MODEL_FLAGS:
            model = value if has_value else next(iter(flags[place + 1 :]), "")
    # Agents that know several providers put the provider before it.
    return settings.policy(agent, model.rpartition("/")[2])


def member_of(wanted: RunRequest) -> Member:
    """One agent of a run's list."""
    return Member(
        agent=wanted.agent,
        flags=wanted.flags,
        abilities=Abilities(
            talks=wanted.drive.talks,
            resumes=wanted.drive.resumes,
            resume_factor=wanted.drive.resume_factor,
        ),
        policy=replace(wanted.policy, notify=()),  # addresses may hold keys, and stay out of logs
    )


def with_policies(run: Run, settings: Settings) -> tuple[Member, ...]:
    """The list of a run's agents, each with its currently configured policy."""
    return tuple(
        replace(each, policy=replace(policy_for(settings, each.agent, each.flags), notify=()))
        for each in run.relay
    )
