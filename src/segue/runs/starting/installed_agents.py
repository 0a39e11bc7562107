"""Which agents can work on a run here, and how each is started."""

from collections.abc import Mapping

import msgspec

from segue.agents import drives
from segue.agents.contracts.drive import Drive
from segue.agents.custom.drive import Custom, drive_of
from segue.core.nearest import did_you_mean
from segue.errors import ConfigError, InputError
from segue.system.config.settings import Settings


class NoAgent(InputError):  # noqa: N818 - told to the user as it is
    """There is no agent to run, or no way to decide which."""


def register(settings: Settings) -> None:
    """Registers the user's own agents, and their own commands for known ones. Raises
    ConfigError."""
    for name, declared in settings.agents.items():
        try:
            custom = msgspec.convert(declared, Custom)
        except (msgspec.ValidationError, ValueError) as fault:
            raise ConfigError(f"[agents.{name}]: {fault}") from None
        drives.register(name, drive_of(name, custom))


def installed(env: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The agents that can run here, and their commands."""
    found: dict[str, tuple[str, ...]] = {}
    for name in drives.names():
        drive = drives.find(name)
        if drive is not None and (command := drive.find(env)) is not None:
            found[name] = command
    return found


def none_installed() -> NoAgent:
    """The error for a machine without any agent, with how to install each."""
    hints = [f"  {name}: {drive.install}" for name in drives.NAMES if (drive := drives.find(name))]
    return NoAgent("no agent is installed; to see segue at work without one: segue drill", *hints)


def driven(
    name: str, env: Mapping[str, str], said_by: str = "agent"
) -> tuple[Drive, tuple[str, ...]]:
    """How this agent is driven, and its command. `said_by` tells where its name comes from. Raises
    NoAgent."""
    drive = drives.find(name)
    if drive is None:
        names = list(drives.names())
        hint = did_you_mean(name, names) or f"segue can drive {', '.join(names)}"
        raise NoAgent(f"{said_by} {name}: no such agent; {hint}")
    command = drive.find(env)
    if command is None:
        raise NoAgent(f"{name} is not installed: {drive.install}")
    return drive, command
