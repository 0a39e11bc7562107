"""segue's entries in the settings of codex and opencode: one MCP server each, `segue mcp`."""

import json
import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from typing import Any

from segue.errors import InputError
from segue.system import mcp_probe, units
from segue.system.files import edits

NAME = "segue"
_TABLE = re.compile(r"\[[ \t]*mcp_servers[ \t]*\.[ \t]*segue[ \t]*\][ \t]*(?:#.*)?")


def codex_path(env: Mapping[str, str]) -> str:
    """The user's config: in CODEX_HOME, otherwise in ~/.codex."""
    folder = env.get("CODEX_HOME") or os.path.join(os.path.expanduser("~"), ".codex")
    return os.path.join(folder, "config.toml")


def opencode_path(env: Mapping[str, str]) -> str:
    """The user's config; the one with comments, if that is the one that exists."""
    home = env.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    plain = env.get("OPENCODE_CONFIG") or os.path.join(home, "opencode/opencode.json")
    return plain + "c" if not os.path.exists(plain) and os.path.exists(plain + "c") else plain


def add_codex(env: Mapping[str, str], stamp: str, only_print: bool) -> list[str]:
    """Adds the table at the end; returns the message for the user. Raises InputError with one
    line."""
    path, (program, *words) = codex_path(env), units.own_argv("mcp")
    table = (
        f"[mcp_servers.{NAME}]\n"
        f"command = {json.dumps(program, ensure_ascii=False)}\n"
        f"args = {json.dumps(words, ensure_ascii=False)}\n"
    )
    if only_print:
        return [table.rstrip()]
    before = edits.read(path)
    settings = _toml(before or "", path)
    servers = settings.get("mcp_servers", {})
    entry = {"command": program, "args": words}
    if isinstance(servers, dict) and NAME in servers:
        return [_there("codex", path, servers[NAME] == entry)]
    text = before or ""
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    after = f"{text}{gap}{table}"
    if not isinstance(servers, dict) or not _says(after, settings, entry):
        raise InputError(f"{path}: segue cannot add to mcp_servers; add this yourself: {table!r}")
    _check_starts("codex", [program, *words])
    edit = edits.Edit(agent="codex")
    return _setup_lines("codex", path, edits.change(path, before, after, edit, stamp=stamp))


def remove_codex(env: Mapping[str, str], path: str = "") -> str:
    """Removes the table if it is segue's; returns how, or "" if there was nothing to do."""
    path = path or codex_path(env)
    now = edits.read(path)
    if now is None:
        return ""
    settings = _toml(now, path)
    servers = settings.get("mcp_servers")
    if not isinstance(servers, dict) or not _is_own(servers.get(NAME)):
        return ""
    rest = _without_table(now)
    left = {k: v for k, v in servers.items() if k != NAME}
    wanted = {**settings, "mcp_servers": left}
    if _bare(_toml(rest, path)) != _bare(wanted):
        raise InputError(f"{path}: [mcp_servers.{NAME}] has an unexpected form; remove it by hand")
    return edits.take_back(path, now, rest, lambda a, b: _bare(_toml(a, path)) == _toml(b, path))


def add_opencode(env: Mapping[str, str], stamp: str, only_print: bool) -> list[str]:
    """Adds the server; returns the message for the user. Raises InputError with one line."""
    path = opencode_path(env)
    entry = {"type": "local", "command": units.own_argv("mcp"), "enabled": True}
    if only_print:
        return [edits.dump({"mcp": {NAME: entry}}).rstrip()]
    before = edits.read(path)
    settings = edits.parse(before or "", path)
    servers = settings.get("mcp", {}) if isinstance(settings, dict) else None
    if not isinstance(servers, dict):
        raise InputError(f"{path}: not an object, or its mcp is not; nothing was written")
    if NAME in servers:
        return [_there("opencode", path, servers[NAME] == entry)]
    _check_starts("opencode", units.own_argv("mcp"))
    after = {**settings, "mcp": {**servers, NAME: entry}}
    edit = edits.Edit(agent="opencode")
    text = edits.dump(after, before or "")
    return _setup_lines("opencode", path, edits.change(path, before, text, edit, stamp=stamp))


def remove_opencode(env: Mapping[str, str], path: str = "") -> str:
    """Removes the server if it is segue's; returns how, or "" if there was nothing to do."""
    path = path or opencode_path(env)
    now = edits.read(path)
    settings = edits.parse(now, path) if now is not None else None
    if now is None or not isinstance(settings, dict):
        return ""
    servers = settings.get("mcp")
    if not isinstance(servers, dict) or not _is_own(servers.get(NAME)):
        return ""
    left = {k: v for k, v in servers.items() if k != NAME}
    rest = {**settings, "mcp": left}
    if not left:
        del rest["mcp"]

    def same(one: str, other: str) -> bool:
        found = [edits.parse(text, path, exact=False) for text in (one, other)]
        for each in found:
            if isinstance(each, dict) and each.get("mcp") == {}:
                del each["mcp"]
        return edits.dump(found[0]) == edits.dump(found[1])

    return edits.take_back(path, now, edits.dump(rest, now), same)


def _check_starts(agent: str, argv: list[str]) -> None:
    """Raises InputError with one line: an agent would complain about a dead server at every
    start."""
    if why := mcp_probe.why_not(argv):
        raise InputError(
            f"{agent}: its MCP server does not start ({shlex.join(argv)}: {why});"
            " nothing was written. Reinstall segue, as its README says"
        )


def _is_own(entry: Any) -> bool:
    """Whether an entry starts segue, wherever it is installed."""
    if not isinstance(entry, dict):
        return False
    command = entry.get("command")
    words = [command] if isinstance(command, str) else command
    listed = [*words, *(entry.get("args") or [])] if isinstance(words, list) else []
    names = [os.path.basename(word) for word in listed if isinstance(word, str)]
    return names[-1:] == ["mcp"] and NAME in names[:-1]


def _without_table(text: str) -> str:
    """The text without the table: from its name to its last entry. What follows, up to the next
    table, belongs to the user."""
    lines: list[str] = []
    below: list[str] | None = None  # comments and blank lines since an entry of the table
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if bare.startswith("["):
            lines += below or []
            below = [] if _TABLE.fullmatch(bare) else None
            if below is not None:
                continue
        if below is None:
            lines.append(line)
        elif bare and not bare.startswith("#"):
            below = []
        else:
            below.append(line)
    return "".join([*lines, *(below or [])])


def _toml(text: str, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as fault:  # a number may be too long
        raise InputError(f"{path}: not TOML: {fault}; nothing was written") from None


def _says(text: str, settings: dict[str, Any], entry: dict[str, Any]) -> bool:
    servers = {**settings.get("mcp_servers", {}), NAME: entry}
    try:
        return tomllib.loads(text) == {**settings, "mcp_servers": servers}
    except (ValueError, RecursionError):
        return False


def _bare(settings: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in settings.items() if not (k == "mcp_servers" and v == {})}


def _there(agent: str, path: str, is_same: bool) -> str:
    if is_same:
        return f"{agent}: {path} already has it"
    return f"{agent}: {path} already has a server named segue; it stays as it is"


def _setup_lines(agent: str, path: str, backup: str) -> list[str]:
    backups = [f"  backup of the file: {backup}"] if backup else []
    return [
        f"{agent}: its MCP server `segue mcp` is in {path}",
        *backups,
        "  to undo this: segue uninstall",
    ]
