"""Writes marks to the user's config.toml, and changes nothing else in the file."""

import json
import os
import re
import tomllib
from pathlib import Path

from segue.errors import ConfigError
from segue.system.config import config

_HEADER = re.compile(r"^\s*\[[^\[\]]")


def with_marks(text: str, kind: str, name: str, marks: dict[str, float]) -> str:
    """The file's text with these marks in `[policy.KIND."NAME"]`. Raises ConfigError if that is
    impossible without changing anything else."""
    table = f"policy.{kind}.{json.dumps(name, ensure_ascii=False)}"
    before = _parsed(text)
    lines = text.splitlines(keepends=True)
    place = next((n for n, line in enumerate(lines) if _is_of(line, kind, name)), None)
    if place is None:
        lines += ["\n"] if text and not text.endswith("\n") else []
        lines += ["\n"] if text.strip() else []
        place = len(lines)
        lines.append(f"[{table}]\n")
    elif not lines[place].endswith("\n"):
        lines[place] += "\n"
    end = next((n for n in range(place + 1, len(lines)) if _HEADER.match(lines[n])), len(lines))
    own = [
        line
        for line in lines[place + 1 : end]
        if not any(re.match(rf"\s*{key}\s*=", line) for key in marks)
    ]
    added = [f"{key} = {value:.2f}\n" for key, value in marks.items()]
    changed = "".join([*lines[: place + 1], *added, *own, *lines[end:]])
    after = _parsed(changed)
    expected = before.setdefault("policy", {}).setdefault(kind, {}).setdefault(name, {})
    expected.update({key: round(value, 2) for key, value in marks.items()})
    if after != before:
        raise ConfigError(
            f"[{table}] is written in a way that segue cannot change: paste it by hand"
        )
    return changed


def write(text: str) -> str:
    """Writes the user's config.toml, completely or not at all; returns its path. Raises
    ConfigError."""
    path = Path(os.path.realpath(config.user_file()))
    try:
        config.replace_file(path, text)
    except OSError as fault:
        raise ConfigError(f"{path} cannot be written: {fault.strerror}") from None
    return str(path)


def _is_of(line: str, kind: str, name: str) -> bool:
    if not _HEADER.match(line):
        return False
    try:
        found = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return False
    table = found.get("policy", {}).get(kind, {}).get(name)
    return bool(table == {})


def _parsed(text: str) -> dict[str, dict[str, dict[str, dict[str, object]]]]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise ConfigError(f"config.toml: {fault}") from None
