"""segue's entries in claude's settings: hooks and the status line. Pure, except for `path`.

Values are as `system/files/edits.parse` returns them. Only segue's own entries are ever changed,
moved or removed; they are recognised by the client that they start.
"""

import os
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from segue.errors import InputError

JSON = dict[str, Any]
_CLIENT, _FLAGS = "/segue/client.py", " -I -S "


def path(env: Mapping[str, str]) -> str:
    """The user's settings file: in CLAUDE_CONFIG_DIR, otherwise in ~/.claude."""
    folder = env.get("CLAUDE_CONFIG_DIR") or os.path.join(os.path.expanduser("~"), ".claude")
    if not os.path.isdir(folder):
        folder = folder.partition(",")[0]  # several folders, as segue and others read it
    return os.path.join(folder, "settings.json")


def is_own(command: object) -> bool:
    """Whether a command is one that `setup` wrote."""
    return isinstance(command, str) and _CLIENT in command and _FLAGS in command


def line_of(settings: JSON) -> Any:
    """The configured status line, or None."""
    return settings.get("statusLine")


def has_own_line(settings: JSON) -> bool:
    """Whether that status line is segue's."""
    line = line_of(settings)
    return isinstance(line, dict) and is_own(line.get("command"))


def is_there(settings: JSON) -> bool:
    """Whether these settings contain any of segue's entries."""
    return has_own_line(settings) or removed(settings, None) != settings


def added(settings: Any, groups: Mapping[str, JSON], line: JSON | None, where: str) -> JSON:
    """The settings with these hooks, one group per event, and this status line (None: unchanged).
    Existing entries of segue are replaced in place. Raises InputError if the file does not contain
    settings."""
    if not isinstance(settings, dict):
        raise InputError(f"{where}: not an object; nothing was written")
    found = deepcopy(settings)
    hooks = found.setdefault("hooks", {})
    if not isinstance(hooks, dict):
        raise InputError(f"{where}: hooks is not an object; nothing was written")
    for event in hooks:
        if event not in groups and isinstance(hooks[event], list):
            hooks[event] = _placed(hooks[event], None)
    for event, group in groups.items():
        entries = hooks.setdefault(event, [])
        if not isinstance(entries, list):
            raise InputError(f"{where}: hooks.{event} is not a list; nothing was written")
        hooks[event] = _placed(entries, group)
    if line is not None:
        found["statusLine"] = line
    return found


def _placed(groups: list[Any], group: JSON | None) -> list[Any]:
    """The list with this group in the place of segue's own, otherwise at the end."""
    placed: list[Any] = []
    for each in groups:
        rest = _rest(each)
        if rest is each:
            placed.append(each)
            continue
        if group is not None:
            placed.append(group)
            group = None
        if rest is not None:
            placed.append(rest)
    return placed if group is None else [*placed, group]


def _rest(group: Any) -> Any:
    """A group without segue's hooks: unchanged if it has none, None if it has no others."""
    hooks = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(hooks, list):
        return group
    foreign = [h for h in hooks if not (isinstance(h, dict) and is_own(h.get("command")))]
    if len(foreign) == len(hooks):
        return group
    return {**group, "hooks": foreign} if foreign else None


def removed(settings: Any, former: Any) -> Any:
    """The settings without segue's entries; `former` is the status line that segue's replaced."""
    if not isinstance(settings, dict):
        return settings
    found = deepcopy(settings)
    hooks = found.get("hooks")
    if isinstance(hooks, dict):
        for event in list(hooks):
            if isinstance(hooks[event], list):
                rest = _placed(hooks[event], None)
                if rest != hooks[event] and not rest:
                    del hooks[event]
                else:
                    hooks[event] = rest
        if not hooks and settings.get("hooks"):
            del found["hooks"]
    if has_own_line(found):
        if former is None:
            del found["statusLine"]
        else:
            found["statusLine"] = former
    return found


def bare(settings: Any) -> Any:
    """The settings without meaningless parts: a list without hooks, a status line that is null.
    Settings that are equal without them are the same to claude."""
    if not isinstance(settings, dict):
        return settings
    found = {k: v for k, v in settings.items() if not (k == "statusLine" and v is None)}
    hooks = found.get("hooks")
    if isinstance(hooks, dict):
        found["hooks"] = {event: groups for event, groups in hooks.items() if groups != []}
    if found.get("hooks") == {}:
        del found["hooks"]
    return found
