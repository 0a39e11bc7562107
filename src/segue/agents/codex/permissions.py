"""Codex: `exec` never asks; its sandbox decides. In a folder that it does not trust, it only
reads."""

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
    read_toml,
    values,
    within,
)
from segue.core.stops.types import Grant

_BYPASS = ("--dangerously-bypass-approvals-and-sandbox", "--yolo")
_WRITES = ("--sandbox", "workspace-write")
_NETWORK = ("-c", "sandbox_workspace_write.network_access=true")
_KEYS = ("CODEX_API_KEY", "CODEX_ACCESS_TOKEN")
_OWN_RULES = ("default_permissions", "permissions")
"""Settings with which users have their own rules; only codex knows what these amount to."""


def _look(flags: Sequence[str], env: Env, cwd: str) -> Access:
    folder = Path(env.get("CODEX_HOME") or home(env) / ".codex")
    config = read_toml(folder / "config.toml")
    for name in values(flags, "-p", "--profile"):
        profiles = _table(config, "profiles")
        config = {**config, **_table(profiles, name), **read_toml(folder / f"{name}.config.toml")}
    mode, is_trusted = _mode(flags, config), _is_trusted(config, cwd)
    writes: bool | None = (
        mode or ("workspace-write" if is_trusted else "read-only")
    ) != "read-only"
    if not mode and any(config.get(key) for key in _OWN_RULES):
        writes = None
    why = f'its sandbox is "{mode}"' if mode else "it does not trust this folder"
    signed_in, sign_in = _signed_in(config, folder, env)
    return Access(
        edits=writes,
        commands=writes,
        why=f"{why}, so it only reads",
        add=Grant(what="writes in this folder; no network", flags=_WRITES),
        signed_in=signed_in,
        sign_in=sign_in,
        asks=("login", "status"),
    )


def _grants(refused: RefusedCall) -> tuple[Grant, ...]:
    if not refused.tool:
        return ()
    return (
        Grant(what="writes in this folder; no network", flags=_WRITES),
        Grant(what="the same with the network", flags=(*_WRITES, *_NETWORK)),
        Grant(what="everything: only in a container", flags=_BYPASS[:1]),
    )


def _mode(flags: Sequence[str], config: JSON) -> str:
    """The sandbox mode; "" if nothing sets it."""
    if has(flags, *_BYPASS):
        return "danger-full-access"
    if has(flags, "--approve-for-me"):
        return "workspace-write"
    if given := values(flags, "-s", "--sandbox"):
        return given[-1]
    for setting in reversed(values(flags, "-c", "--config")):
        key, _, value = setting.partition("=")
        if key.strip() == "sandbox_mode":
            return value.strip().strip("\"'")
    mode = config.get("sandbox_mode")
    return mode if isinstance(mode, str) else ""


def _is_trusted(config: JSON, cwd: str) -> bool:
    """Whether codex trusts the folder, or the top of its repository."""
    projects = _table(config, "projects")
    top = [folder for folder in within(cwd) if (folder / ".git").exists()]
    names = {cwd, os.path.realpath(cwd), *map(str, top)}
    return any(_table(projects, name).get("trust_level") == "trusted" for name in names)


def _signed_in(config: JSON, folder: Path, env: Env) -> tuple[bool | None, str]:
    how = "codex login"
    provider = config.get("model_provider")
    if isinstance(provider, str) and provider != "openai":
        key = _table(_table(config, "model_providers"), provider).get("env_key")
        if not isinstance(key, str):
            return True, how  # it needs none, or has its own way
        return key in env, f"set {key}, which its provider {provider} takes the key from"
    if any(name in env for name in _KEYS) or is_filled(folder / "auth.json"):
        return True, how
    return None, how


def _table(config: Any, name: str) -> JSON:
    found = config.get(name) if isinstance(config, dict) else None
    return found if isinstance(found, dict) else {}


PERMISSIONS = Permissions(look=_look, grants=_grants)
