"""`segue setup`: registers segue with agents, by adding entries to their own files and nothing
else."""

import os
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import click

from segue import agents
from segue.agents.claude import setup as claude_settings
from segue.errors import InputError
from segue.system import clock, mcp_entries, units
from segue.system.files import edits, state
from segue.views import printing

_TIMEOUT_S = 5
_MATCHERS = {"PreToolUse": "Read|NotebookRead"}
"""Before which tools claude calls the hook: those whose size can be estimated before they run."""


class _Agent(click.Choice[str]):
    """An argument that names an agent whose settings segue can add to, by any of its names."""

    name = "agent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name = agents.canonical(str(value))
        if name not in self.choices and agents.find(name) is not None:
            raise InputError(
                f"{name} needs no setup: `segue run --agent {name}` and `segue status` work"
                " as they are"
            )
        return super().convert(name if name in self.choices else value, param, ctx)


@click.command()
@click.argument("agent", type=_Agent(["claude", "codex", "opencode"]))
@click.option("--print", "only_print", is_flag=True, help="Print the entries; write nothing.")
@click.option(
    "--status-line/--no-status-line",
    default=True,
    help="claude: show the gauge below the prompt; an existing status line stays above it.",
)
def command(agent: str, only_print: bool, status_line: bool) -> None:
    """Add segue to AGENT's own settings: hooks and a status line for claude; the MCP server for
    codex and opencode. segue keeps a copy of the file, and `segue uninstall` undoes the
    change."""
    ways: dict[str, Callable[[], list[str]]] = {
        "claude": lambda: _claude(os.environ, status_line, only_print),
        "codex": lambda: mcp_entries.add_codex(os.environ, _stamp(), only_print),
        "opencode": lambda: mcp_entries.add_opencode(os.environ, _stamp(), only_print),
    }
    for line in ways[agent]():
        printing.say(line)


def hook_groups() -> dict[str, dict[str, Any]]:
    """segue's hooks in the format of claude's settings."""
    from segue.watch.server.hooks import EVENTS

    found: dict[str, dict[str, Any]] = {}
    for event in EVENTS:
        entry = {
            "type": "command",
            "command": units.client_command("hook", event),
            "timeout": _TIMEOUT_S,
        }
        matcher = {"matcher": _MATCHERS[event]} if event in _MATCHERS else {}
        found[event] = {**matcher, "hooks": [entry]}
    return found


def _claude(env: Mapping[str, str], with_line: bool, only_print: bool) -> list[str]:
    path = claude_settings.path(env)
    _check_name(path)
    before = edits.read(path)
    settings = edits.parse(before or "", path)
    record = edits.load().get(os.path.abspath(path)) or edits.Edit(agent="claude")
    is_there = isinstance(settings, dict) and claude_settings.is_there(settings)
    edit = record if is_there else edits.Edit(agent="claude")
    line: dict[str, Any] | None = None
    aside, notes = "", list[str]()
    if with_line and isinstance(settings, dict):
        line, aside, notes = _line(settings, edit, path)
    after = claude_settings.added(settings, hook_groups(), line, path)
    if only_print:
        groups = {event: [group] for event, group in hook_groups().items()}
        own = {"hooks": groups, **({"statusLine": line} if line else {})}
        return [edits.dump(own).rstrip()]
    if edits.dump(after) == edits.dump(settings):
        return [f"claude: {path} is already set up", *notes]
    backup = edits.change(
        path, before, edits.dump(after, before or ""), edit, stamp=_stamp(), aside=aside
    )
    state.make_watch_folder()
    what = "hooks and status line" if line else "hooks"
    lines = [f"claude: {what} are in {path}"]
    if backup:
        lines.append(f"  backup of the file: {backup}")
    lines += [f"  {note}" for note in notes]
    if settings.get("disableAllHooks"):
        lines.append("  disableAllHooks is set there: claude runs none of them")
    return [
        *lines,
        "  open sessions get the hooks when you restart them",
        "  the hooks need the daemon: segue watch, or segue service install",
        "  handoffs need tmux: start claude there, or with `segue open claude` in any terminal",
        "  to undo this: segue uninstall",
    ]


def _line(
    settings: Mapping[str, Any], edit: edits.Edit, path: str
) -> tuple[dict[str, Any] | None, str, list[str]]:
    """segue's status line (None if it cannot be added), the content of the file that keeps the
    user's former one ("" if there was none), and notes. Stores the former one and the file's path
    in `edit`."""
    current = settings.get("statusLine")
    if claude_settings.has_own_line(dict(settings)):
        former = edits.parse(edit.former, path) if edit.former else None
    else:
        former = current
    if former is None:
        command = units.client_command("statusline", "-")
        return {"type": "command", "command": command}, "", []
    words = former.get("command") if isinstance(former, dict) else None
    if not isinstance(words, str) or former.get("type") != "command":
        return None, "", ["statusLine there is not a command, so segue leaves it unchanged"]
    edit.former = edits.dump(former)
    name = f"former-{zlib.crc32(os.fsencode(os.path.abspath(path))):08x}.sh"
    edit.aside = os.path.join(state.watch_folder(), name)
    own = {**former, "command": units.client_command("statusline", "-", edit.aside)}
    text = words.encode("utf-8", "replace").decode()
    return own, text + "\n", ["your own status line stays, above segue's"]


def _check_name(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise InputError("the name of claude's folder is not UTF-8; nothing was written") from None


def _stamp() -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(clock.now(), UTC).strftime("%Y%m%dT%H%M%S")
