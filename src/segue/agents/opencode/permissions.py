"""opencode: `permission` in its config or in OPENCODE_PERMISSION. By default it may do everything
except leave its folder."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from segue.agents.contracts.permission import (
    JSON,
    Access,
    Env,
    Permissions,
    RefusedCall,
    home,
    programs,
    read_json,
    within,
)
from segue.core.stops.types import Grant

_VARIABLE = "OPENCODE_PERMISSION"
_FILES = ("opencode.json", "opencode.jsonc")
_EDITORS = ("edit", "write", "patch", "multiedit", "apply_patch")


def _look(flags: Sequence[str], env: Env, cwd: str) -> Access:
    edits = commands = True
    for rules in _rules(env, cwd):
        edits = _action(rules, "edit", edits)
        commands = _action(rules, "bash", commands)
    wanted = {"edit": "allow"} if not edits else {}
    wanted |= {"bash": "allow"} if not commands else {}
    return Access(
        edits=edits,
        commands=commands,
        why="its config says so",
        add=_granted("edits, and all commands", wanted) if wanted else None,
        # Some of its models need no account.
    )


def _grants(refused: RefusedCall) -> tuple[Grant, ...]:
    if not refused.tool:
        return ()
    found: list[Grant] = []
    outside = [file for file in refused.files if not _is_inside(file, refused.cwd)]
    if outside:
        folder = os.path.dirname(outside[0])
        rule = {"external_directory": {f"{folder}/*": "allow"}}
        found.append(_granted(f"files in {folder}", rule))
    elif refused.tool in _EDITORS:
        found.append(_granted("edits in this folder", {"edit": "allow"}))
    elif refused.tool == "bash":
        if names := programs(refused.command):
            rule = {"bash": {f"{name} *": "allow" for name in names}}
            found.append(_granted(f"commands that begin with {' or '.join(names)}", rule))
        found.append(_granted("edits, and all commands", {"edit": "allow", "bash": "allow"}))
    else:
        found.append(_granted(f"{refused.tool} alone", {refused.tool: "allow"}))
    found.append(_granted("everything: only in a container", {"*": "allow"}))
    return tuple(found)


def _granted(what: str, rules: JSON) -> Grant:
    return Grant(what=what, env=((_VARIABLE, json.dumps(rules, separators=(",", ":"))),))


def _rules(env: Env, cwd: str) -> Iterator[Any]:
    """`permission` of all configs that apply, the weakest first."""
    base = Path(env.get("XDG_CONFIG_HOME") or home(env) / ".config", "opencode")
    files = [base / name for name in ("config.json", *_FILES)]
    files += [Path(env["OPENCODE_CONFIG"])] if env.get("OPENCODE_CONFIG") else []
    for folder in reversed(list(within(cwd))):
        files += [folder / name for name in _FILES]
        files += [folder / ".opencode" / name for name in _FILES]
    for file in files:
        yield read_json(file).get("permission")
    for name, is_whole in (("OPENCODE_CONFIG_CONTENT", True), (_VARIABLE, False)):
        try:
            parsed = json.loads(env.get(name) or "null")
        except ValueError:
            continue
        yield parsed.get("permission") if is_whole and isinstance(parsed, dict) else parsed


def _action(rules: Any, tool: str, before: bool) -> bool:
    """Whether a tool may be used without asking. If there are patterns and some allow it, the user
    has chosen."""
    if isinstance(rules, str):
        return rules == "allow"
    if not isinstance(rules, dict):
        return before
    rule = rules.get(tool, rules.get("*"))
    if isinstance(rule, dict):
        return not rule or "allow" in rule.values()
    return rule == "allow" if isinstance(rule, str) else before


def _is_inside(file: str, cwd: str) -> bool:
    top = list(within(cwd))[-1] if cwd else Path("/")
    top = top if (top / ".git").exists() else Path(os.path.realpath(cwd))
    real = os.path.realpath(os.path.join(cwd, file))
    return real == str(top) or real.startswith(f"{str(top).rstrip('/')}/")


PERMISSIONS = Permissions(look=_look, grants=_grants)
