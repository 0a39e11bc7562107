"""The claude form's hooks: those of the settings given on the command line that run after a
compaction."""

import json
import subprocess
from collections.abc import Iterator

from segue.drill.rehearsal.inbox import JSON

_TIMEOUT_S = 60.0
_COMPACT = ("", "*", "compact")


def commands(path: str) -> list[str]:
    """The commands that a settings file runs after a compaction. Raises ValueError if it is not a
    settings file."""
    try:
        with open(path, encoding="utf-8") as file:
            settings = json.load(file)
        return list(_commands(settings))
    except (OSError, TypeError, AttributeError, KeyError) as fault:
        raise ValueError(f"{path}: not a settings file ({fault})") from None


def _commands(settings: JSON) -> Iterator[str]:
    for group in settings.get("hooks", {}).get("SessionStart", []):
        if group.get("matcher", "") in _COMPACT:
            yield from (str(hook["command"]) for hook in group["hooks"])


def after_compaction(commands: list[str], session: str, cwd: str) -> list[str]:
    """Runs the hooks; returns what each adds to the conversation. One that fails adds nothing."""
    found = []
    event = {"hook_event_name": "SessionStart", "source": "compact", "session_id": session}
    for command in commands:
        try:
            done = subprocess.run(  # noqa: S603 - the hooks of the user who started it
                ["/bin/sh", "-c", command],
                input=json.dumps({**event, "cwd": cwd}),
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=True,
            )
            found.append(str(json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]))
        except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError):
            continue
    return found
