"""`segue config`: the settings, and where each value comes from."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from segue import agents
from segue.core.nearest import did_you_mean
from segue.errors import InputError
from segue.system.config import config as files
from segue.system.config.settings import Flags, Settings, Source, load
from segue.views import printing
from segue.views import verdicts as render

_USUAL = 80
_GAP = 2


@click.group("config")
def command() -> None:
    """Show the settings, and where each value comes from.

    Flags override the environment, which overrides the project's .segue.toml, which overrides
    your config.toml, which overrides a preset.
    """


@command.command()
@click.option("--agent", metavar="A", help="Show the policy for this agent.")
@click.option("--model", metavar="M", default="", help="Show the policy for this model.")
@click.option("--policy", metavar="NAME", help="As for `segue run`: a preset.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="As for `segue run`.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def show(
    agent: str | None, model: str, policy: str | None, sets: tuple[str, ...], as_json: bool
) -> None:
    """Show every value that applies in this folder, and where it comes from."""
    settings = load(os.getcwd(), os.environ, Flags(policy=policy, set=sets))
    lines = list(values(settings, _agent_name(settings, agent), model))
    if as_json:
        printing.say(render.as_json(printing.with_schema(as_dict(settings, lines))))
        return
    is_terminal = sys.stdout.isatty()
    printing.say("\n".join(table(settings, lines, _width() if is_terminal else None)))
    for note in settings.notes:
        printing.complain(note)


@command.command()
@click.option(
    "--project", is_flag=True, help="Print the project's file; exit code 1 if there is none."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def path(project: bool, as_json: bool) -> None:
    """Print where your config.toml is, or would be."""
    if not project:
        _say_path(files.user_file(), as_json=as_json)
        return
    from segue.system.config.project import find_project

    notes: list[str] = []
    found = find_project(Path.cwd(), os.environ, notes)
    for note in notes:
        printing.complain(note)
    if found is not None or as_json:
        _say_path(found, as_json=as_json)
    if found is None:
        sys.exit(1)


def _say_path(path: Path | None, *, as_json: bool) -> None:
    if as_json:
        printing.say_json({"path": None if path is None else str(path)})
    else:
        printing.say(path)


def _agent_name(settings: Settings, agent: str | None) -> str:
    """The canonical name of an agent; "" if none is named. Raises InputError for an unknown
    agent."""
    if not agent:
        return ""
    known = dict.fromkeys((*agents.names(), *settings.agents, *agents.stores()))
    name = agents.canonical(agent)
    if name not in known:
        hint = did_you_mean(name, known) or f"choose one of {', '.join(known)}"
        raise InputError(f"--agent {agent}: no such agent; {hint}")
    return name


class ConfigLine(NamedTuple):
    """A value, its place in config.toml, and where it was set."""

    table: str
    key: str
    value: Any
    source: Source

    @property
    def name(self) -> str:
        return f"{self.table}.{self.key}"


def values(settings: Settings, agent: str = "", model: str = "") -> Iterator[ConfigLine]:
    """Every value that applies. With an agent or a model, the policy is the one that applies to it,
    and policies of others are left out."""
    policy, sources = settings.policy(agent, model), settings.policy_sources(agent, model)
    for key in policy.__struct_fields__:
        yield ConfigLine("policy", key, _open(key, getattr(policy, key)), sources[key])
    if not (agent or model):
        for (kind, name), special in sorted(settings.scopes().items()):
            for key, each in special.items():
                yield ConfigLine(f"policy.{kind}.{name}", key, _open(key, each.value), each.source)
    for key in ("agent", "check", "share_tree"):
        value = getattr(settings, key)
        if key == "agent" and settings.relay:
            value = list(settings.relay)
        yield ConfigLine("run", key, value, settings.sources[f"run.{key}"])
    for place, part in (("queue", settings.queue), ("worktree", settings.worktree)):
        for key in part.__struct_fields__:
            yield ConfigLine(place, key, getattr(part, key), settings.sources[f"{place}.{key}"])
    for table, named in (
        ("run.flags", settings.flags),
        ("homes", settings.homes),
        ("prompts", settings.prompts),
    ):
        for key, value in named.items():
            yield ConfigLine(table, key, value, settings.sources[f"{table}.{key}"])
    for name, own in settings.agents.items():
        for key in own.__struct_fields__:
            if value := getattr(own, key):
                yield ConfigLine(f"agents.{name}", key, value, settings.sources[f"agents.{name}"])


def _open(key: str, value: Any) -> Any:
    """The value as it may be shown to others, such as in a bug report. Addresses of notification
    services contain passwords, so only their schemes are shown."""
    if key != "notify":
        return value
    urls = value if isinstance(value, (list, tuple)) else [value]
    return [f"{scheme}://…" if is_given else "…" for scheme, is_given, _ in map(_parted, urls)]


def _parted(url: object) -> tuple[str, str, str]:
    return str(url).partition("://")


def as_dict(settings: Settings, lines: list[ConfigLine]) -> dict[str, Any]:
    """The settings in their documented form (docs/config.md)."""
    return {
        "user_file": str(settings.user_file),
        "project_file": str(settings.project_file) if settings.project_file else None,
        "values": {
            line.name: {
                "value": _plain(line.value),
                "source": msgspec.to_builtins(line.source),
            }
            for line in lines
        },
        "notes": list(settings.notes),
    }


def table(settings: Settings, lines: list[ConfigLine], width: int | None) -> list[str]:
    """The lines of the table. `width`: the columns of the terminal; None for a pipe, where no value
    is cut."""
    remark = "" if settings.user_file.exists() else "  (does not exist)"
    project = _tilde(settings.project_file) if settings.project_file else "none"
    drawn = [
        f"{'user file':<14}{_tilde(settings.user_file)}{remark}",
        f"{'project file':<14}{project}",
    ]
    keys = max(len(line.key) for line in lines)
    origins = max(len(line.source.in_words) for line in lines)
    longest = max(len(toml(line.value)) for line in lines)
    room = 24 if width is None else max(8, width - 2 - keys - origins - 2 * _GAP)
    column = min(room, longest)
    before = ""
    for line in lines:
        if line.table != before:
            drawn += ["", printing.style(f"[{line.table}]", bold=True)]
            before = line.table
        value = files.clean(toml(line.value))
        if width is not None and len(value) > column:
            value = value[: column - 1] + "…"
        origin = line.source.in_words
        is_default = line.source.kind == "default"
        colour = None if is_default else "cyan"
        drawn.append(
            f"  {line.key:<{keys}}{' ' * _GAP}"
            + printing.style(
                f"{value:<{column}}", fg=None if is_default else "cyan", bold=not is_default
            )
            + " " * _GAP
            + printing.style(origin, fg=colour, dim=is_default)
        )
    return drawn


def toml(value: Any) -> str:
    """A value as TOML; "none" if it is not set."""
    value = _plain(value)
    if value is None:
        return "none"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float):
        return f"{value:.10g}"
    return json.dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    bare = name.replace("-", "").replace("_", "")
    return name if bare.isascii() and bare.isalnum() else json.dumps(name, ensure_ascii=False)


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=str)


def _tilde(path: Path) -> str:
    home = os.path.expanduser("~")
    text = files.clean(str(path))
    return "~" + text[len(home) :] if text.startswith(home + "/") else text


def _width() -> int:
    try:
        return int(os.environ.get("COLUMNS", "")) or _USUAL
    except ValueError:
        pass
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _USUAL
    except OSError:
        return _USUAL
