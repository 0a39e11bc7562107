"""`segue run --dry-run`: what would be started, and by which rules. Writes nothing."""

import os
import shlex
from pathlib import Path
from typing import Any

import click
import msgspec

from segue.agents.drive import Launch, Order
from segue.cli.config import toml
from segue.cli.render import as_json as to_json
from segue.cli.telling import clean
from segue.core import continuation
from segue.core.marks import marks
from segue.core.policy import Policy
from segue.core.redact import redact
from segue.core.session import Look
from segue.io import state
from segue.io.settings import Settings
from segue.runner.begin import Wanted
from segue.runner.folders import RunFolder
from segue.runner.prompts import Prompts
from segue.store import runs_path
from segue.transcripts.windows import Windows

_RUN, _SESSION = "run-ID", "SESSION-ID"
_LABEL = 12


def show(wanted: Wanted, settings: Settings, *, as_json: bool) -> None:
    """Prints it. Raises ConfigError for prompts that cannot be filled, as a run would."""
    Prompts(settings.prompts)
    found = as_dict(wanted, settings)
    click.echo(to_json(found) if as_json else "\n".join(_lines(found)))


def as_dict(wanted: Wanted, settings: Settings) -> dict[str, Any]:
    """All of it, for programs (docs/json.md)."""
    folder = RunFolder(_RUN).path / "leg-001"
    launch = _launch(wanted, str(folder))
    sources = settings.policy_sources(wanted.agent)
    usual = Policy()
    return {
        "schema": 1,
        "agent": wanted.agent,
        "cwd": wanted.cwd,
        "task": wanted.task,
        "argv": list(launch.argv),
        "env": {name: _shown(name, value) for name, value in _added(launch).items()},
        "input_bytes": len(launch.input),
        "input_stays_open": launch.stays_open,
        "check": wanted.check or None,
        "check_from": settings.sources["run.check"].in_words if wanted.check else None,
        "share_tree": wanted.share_tree,
        "policy": {
            key: {
                "value": msgspec.to_builtins(getattr(wanted.policy, key)),
                "default": msgspec.to_builtins(getattr(usual, key)),
                "source": sources[key].in_words,
            }
            for key in usual.__struct_fields__
            if getattr(wanted.policy, key) != getattr(usual, key)
        },
        "marks": _marks(wanted),
        "prompts": {
            name: str(settings.prompts[name]) if name in settings.prompts else None
            for name in continuation.NAMES
        },
        "runs_file": runs_path(),
        "folder": str(Path(state.state_folder(), "runs", _RUN)),
        "notes": list(settings.notes),
    }


def _launch(wanted: Wanted, folder: str) -> Launch:
    return wanted.drive.launch(
        Order(
            command=wanted.command,
            prompt=wanted.task,
            new_id=_SESSION,
            flags=wanted.flags,
            cwd=wanted.cwd,
            folder=folder,
            env=os.environ,
        )
    )


def _added(launch: Launch) -> dict[str, str]:
    return {**launch.env, "SEGUE_RUN": _RUN, "SEGUE_LEG": f"{_RUN}/1"}


def _shown(name: str, value: str) -> str:
    """A secret is not shown."""
    return redact(f"{name}={value}")[0].partition("=")[2]


def _marks(wanted: Wanted) -> dict[str, Any]:
    windows = Windows(wanted.policy, os.environ, _price_window)
    look = Look(session_id="", cwd=wanted.cwd, model=_model(wanted.flags))
    window, enforced = windows.of(wanted.drive.agent, look)
    found = marks(wanted.policy, window.tokens, enforced)
    return {
        "model": look.model or None,
        "window": window.tokens,
        "window_from": window.source,
        "agents_own_limit": enforced,
        "soft": found.soft_tokens,
        "hard": found.hard_tokens,
    }


def _model(flags: tuple[str, ...]) -> str:
    """As the user names it to the agent: all of them call it so."""
    for place, flag in enumerate(flags):
        name, equals, value = flag.partition("=")
        if name in ("--model", "-m"):
            said = value if equals else next(iter(flags[place + 1 : place + 2]), "")
            return said.rpartition("/")[2]
    return ""


def _price_window(model: str) -> int | None:
    from segue.io import prices

    return prices.window_tokens(model)


def _lines(found: dict[str, Any]) -> list[str]:
    told: list[tuple[str, str]] = [("command", shlex.join(found["argv"]))]
    told += [("", f"in {found['cwd']}")]
    told += [("environment", f"{k}={shlex.quote(v)}") for k, v in found["env"].items()]
    if found["input_bytes"]:
        more = ", and stays open" if found["input_stays_open"] else ""
        told.append(("input", f"the task, {found['input_bytes']:,} bytes{more}"))
    if found["check"]:
        told.append(("check", f"{found['check']}  ({found['check_from']})"))
    told += [
        ("policy", f"{key} = {toml(v['value'])}  ({v['source']}; default {toml(v['default'])})")
        for key, v in found["policy"].items()
    ] or [("policy", "graduated, all defaults")]
    told.append(("marks", _marks_said(found["marks"])))
    told += [
        ("prompts", f"{name}: {path or 'built in'}") for name, path in found["prompts"].items()
    ]
    told += [("state", found["runs_file"]), ("", found["folder"])]
    told += [("note", note) for note in found["notes"]]
    lines, before = [], ""
    for name, text in told:
        label = name if name != before else ""
        before = name or before
        # The command is for pasting, so it stays as it is, line breaks of the task and all.
        said = text if name == "command" else clean(text)
        lines.append(f"{click.style(f'{label:<{_LABEL}}', dim=True)}{said}")
    return [*lines, "Nothing was started and nothing was written."]


def _marks_said(found: dict[str, Any]) -> str:
    if found["hard"] is None:
        return "no handoffs: hard_mark is above 1"
    sure = "" if found["window_from"] != "default" else ", which is a guess"
    return (
        f"handoff at a pause from {found['soft']:,} tokens on, at once from {found['hard']:,};"
        f" of a window of {found['window']:,}{sure}, as long as the agent tells no other"
    )
