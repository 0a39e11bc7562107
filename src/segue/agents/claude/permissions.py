"""Claude Code: permission modes, allow-lists in flags and settings files."""

import os
import sys
from collections.abc import Iterator, Sequence
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
)
from segue.core.stops.types import Grant

_EDITORS = ("Edit", "Write", "MultiEdit", "NotebookEdit")
_SKIP = "--dangerously-skip-permissions"
_MODE = "--permission-mode"
_ALLOW, _DENY = ("--allowedTools", "--allowed-tools"), ("--disallowedTools", "--disallowed-tools")
_EDITS = (_MODE, "acceptEdits")
_ACCOUNTS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
)
_TOKENS = "CLAUDE_CODE_OAUTH_TOKEN"  # also the prefix of others by which one may be passed
_MANAGED = (
    "/Library/Application Support/ClaudeCode/managed-settings.json"
    if sys.platform == "darwin"
    else "/etc/claude-code/managed-settings.json"
)


def _look(flags: Sequence[str], env: Env, cwd: str) -> Access:
    settings = list(_settings(flags, env, cwd))
    rules = [rule for each in settings for rule in _strings(_part(each).get("allow"))]
    rules += values(flags, *_ALLOW, many=True)
    denied = {rule for each in settings for rule in _strings(_part(each).get("deny"))}
    denied |= set(values(flags, *_DENY, many=True))
    modes = [mode for each in settings if isinstance(mode := _part(each).get("defaultMode"), str)]
    modes += values(flags, _MODE)
    mode = "bypassPermissions" if has(flags, _SKIP) else (modes or ["default"])[-1]
    is_sandboxed = any(
        sandbox.get("enabled") is True and sandbox.get("autoAllowBashIfSandboxed") is not False
        for each in settings
        if isinstance(sandbox := each.get("sandbox"), dict)
    )
    edits: bool | None = mode in ("acceptEdits", "bypassPermissions") or _allows(rules, *_EDITORS)
    commands: bool | None = mode == "bypassPermissions" or _allows(rules, "Bash") or is_sandboxed
    if mode == "auto":  # it decides for each call
        edits, commands = edits or None, commands or None
    if mode == "plan":
        edits = commands = False
    edits = False if "Edit" in denied else edits
    commands = False if "Bash" in denied else commands
    why = f"its permission mode is {mode}"
    if mode == "bypassPermissions" and _is_root() and not env.get("IS_SANDBOX"):
        edits = commands = False
        why = "it refuses to skip permissions as root"
    return Access(
        edits=edits,
        commands=commands,
        why=why,
        add=Grant(what="edits here, and all commands", flags=(*_EDITS, "--allowedTools", "Bash")),
        signed_in=_signed_in(settings, env),
        sign_in="claude auth login, or set ANTHROPIC_API_KEY",
        asks=("auth", "status"),
    )


def _grants(refused: RefusedCall) -> tuple[Grant, ...]:
    if not refused.tool:
        return ()
    found: list[Grant] = []
    if refused.tool in _EDITORS:
        found.append(Grant(what="edits in this folder", flags=_EDITS))
    elif refused.tool != "Bash":
        found.append(Grant(what=f"{refused.tool} alone", flags=("--allowedTools", refused.tool)))
    elif names := programs(refused.command):
        rules = tuple(f"Bash({name} *)" for name in names)
        what = f"edits here, and commands that begin with {' or '.join(names)}"
        found.append(Grant(what=what, flags=(*_EDITS, "--allowedTools", *rules)))
    if refused.tool in (*_EDITORS, "Bash"):
        flags = (*_EDITS, "--allowedTools", "Bash")
        found.append(Grant(what="edits here, and all commands", flags=flags))
    lifted = (("IS_SANDBOX", "1"),) if _is_root() else ()
    found.append(Grant(what="everything: only in a container", flags=(_SKIP,), env=lifted))
    return tuple(found)


def _settings(flags: Sequence[str], env: Env, cwd: str) -> Iterator[JSON]:
    """All settings that apply, the weakest first."""
    yield read_json(_config(env) / "settings.json")
    for name in ("settings.json", "settings.local.json"):
        yield read_json(Path(cwd, ".claude", name))
    for value in values(flags, "--settings"):
        yield settings_of(value, cwd)
    yield read_json(_MANAGED)


def settings_of(value: str, cwd: str) -> JSON:
    """The settings from a file, or given directly."""
    import json

    if not value.lstrip().startswith("{"):
        return read_json(Path(cwd, value))
    try:
        answer = json.loads(value)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _signed_in(settings: list[JSON], env: Env) -> bool | None:
    named = set(env) | {
        name for each in settings if isinstance(more := each.get("env"), dict) for name in more
    }
    if any(name in _ACCOUNTS or name.startswith(_TOKENS) for name in named):
        return True
    if any(each.get("apiKeyHelper") for each in settings):
        return True
    return True if is_filled(_config(env) / ".credentials.json") else None


def _config(env: Env) -> Path:
    return Path(env.get("CLAUDE_CONFIG_DIR") or home(env) / ".claude")


def _part(settings: JSON) -> JSON:
    found = settings.get("permissions")
    return found if isinstance(found, dict) else {}


def _strings(found: Any) -> list[str]:
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _allows(rules: list[str], *tools: str) -> bool:
    """Whether the rules allow one of these tools. A list that the user wrote is their choice,
    however short it is."""
    return any(rule.partition("(")[0] in tools for rule in rules)


def _is_root() -> bool:
    return os.geteuid() == 0


PERMISSIONS = Permissions(look=_look, grants=_grants)
