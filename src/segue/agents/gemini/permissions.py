"""Gemini CLI must trust the folder; then its approval mode and its list of allowed tools say which
tools it gets. Without a terminal, a tool that needs approval does not exist."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from segue.agents.contracts.permission import (
    JSON,
    Access,
    Env,
    Permissions,
    RefusedCall,
    has,
    home,
    is_filled,
    programs,
    read_json,
    values,
    within,
)
from segue.core.stops.types import Grant

_TRUST = "--skip-trust"
_MODE = "--approval-mode"
_TOOLS = "--allowed-tools"
_SHELL = "run_shell_command"
_EDITORS = ("write_file", "replace")
_EDITS = (_MODE, "auto_edit")
_ALL = (_MODE, "yolo")
_KEYS = (
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_GENAI_USE_GCA",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "CLOUD_SHELL",
)


def _look(flags: Sequence[str], env: Env, cwd: str) -> Access:
    settings = [read_json(_folder(env) / "settings.json")]
    settings.append(read_json(Path(cwd, ".gemini", "settings.json")))
    modes = [_inside(each, "general", "defaultApprovalMode") for each in settings]
    modes += ["yolo"] if has(flags, "-y", "--yolo") else values(flags, _MODE)
    mode = next(
        (mode_name for mode_name in reversed(modes) if isinstance(mode_name, str)), "default"
    )
    tools = [t for each in settings for t in _strings(_inside(each, "tools", "allowed"))]
    tools += values(flags, _TOOLS, many=True)
    names = {tool.partition("(")[0] for tool in tools}
    has_rules = has(flags, "--policy", "--admin-policy") or any(
        (_folder(env) / "policies").glob("*.toml")
    )
    edits: bool | None = mode in ("auto_edit", "yolo") or not names.isdisjoint(_EDITORS)
    commands: bool | None = mode == "yolo" or _SHELL in names
    if has_rules:  # the user's own rules; only gemini knows what they amount to
        edits, commands = edits or None, commands or None
    why = f"its approval mode is {mode}"
    add: tuple[str, ...] = (*_EDITS, _TOOLS, _SHELL)
    if not _is_trusted(flags, settings, env, cwd):
        add = () if edits and commands else add
        edits = commands = False
        why = "it does not trust this folder"
    return Access(
        edits=edits,
        commands=commands,
        why=why,
        add=Grant(what="edits here, and all commands", flags=(_TRUST, *add)),
        signed_in=_signed_in(settings, env, cwd),
        sign_in="start gemini once and sign in, or set GEMINI_API_KEY",
    )


def _grants(refused: RefusedCall) -> tuple[Grant, ...]:
    found: list[Grant] = []
    if not refused.tool:  # it did not trust the folder
        if has(refused.flags, "-y", "--yolo", _MODE):
            found.append(Grant(what="trusts this folder in this run", flags=(_TRUST,)))
    elif refused.tool in _EDITORS:
        found.append(Grant(what="edits in this folder", flags=_with_trust(*_EDITS)))
    elif refused.tool != _SHELL:
        flags = _with_trust(*_EDITS, _TOOLS, refused.tool)
        found.append(Grant(what=f"edits here, and {refused.tool}", flags=flags))
    elif names := programs(refused.command):
        rules = tuple(f"{_SHELL}({name})" for name in names)
        what = f"edits here, and commands that begin with {' or '.join(names)}"
        found.append(Grant(what=what, flags=_with_trust(*_EDITS, _TOOLS, *rules)))
    if not found or refused.tool:
        flags = _with_trust(*_EDITS, _TOOLS, _SHELL)
        found.append(Grant(what="edits here, and all commands", flags=flags))
        what = "everything: only in a container, or with --sandbox"
        found.append(Grant(what=what, flags=_with_trust(*_ALL)))
    return tuple(found)


def _with_trust(*flags: str) -> tuple[str, ...]:
    return (_TRUST, *flags)


def _is_trusted(flags: Sequence[str], settings: list[JSON], env: Env, cwd: str) -> bool:
    if has(flags, _TRUST) or env.get("GEMINI_CLI_TRUST_WORKSPACE") == "true":
        return True
    trust = _inside(settings[0], "security", "folderTrust")
    if isinstance(trust, dict) and trust.get("enabled") is False:
        return True
    file = env.get("GEMINI_CLI_TRUSTED_FOLDERS_PATH") or _folder(env) / "trustedFolders.json"
    here, longest, level = os.path.realpath(cwd), -1, ""
    for name, setting in read_json(file).items():
        place = os.path.dirname(name) if setting == "TRUST_PARENT" else name
        is_above = here == place or here.startswith(f"{place.rstrip('/')}/")
        if is_above and len(place) > longest:
            longest, level = len(place), str(setting)
    return level.startswith("TRUST_")


def _signed_in(settings: list[JSON], env: Env, cwd: str) -> bool | None:
    if any(name in env for name in _KEYS) or is_filled(_folder(env) / "oauth_creds.json"):
        return True
    if any(_inside(each, "security", "auth", "selectedType") for each in settings):
        return None  # its key may be in the system's keychain
    places = [_folder(env), home(env), *within(cwd)]
    if any(is_filled(place / name) for place in places for name in (".env", ".gemini/.env")):
        return None
    return False


def _folder(env: Env) -> Path:
    return Path(env.get("GEMINI_CLI_HOME") or home(env)) / ".gemini"


def _inside(found: Any, *names: str) -> Any:
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _strings(found: Any) -> list[str]:
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


PERMISSIONS = Permissions(look=_look, grants=_grants)
