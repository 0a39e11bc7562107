"""`segue run --dry-run`: what would be started, and by which rules. Writes nothing."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from segue.agents.contracts.drive import Launch, LegOrder
from segue.cli.tools.config import toml
from segue.core.handoffs import prompts as continuation
from segue.core.policy import Policy
from segue.core.secrets.redact import redact
from segue.core.sessions.forecasts.marks import marks
from segue.core.sessions.types import Look
from segue.runs.briefing.prompts import Prompts
from segue.runs.folders import RunFolder
from segue.runs.starting import preflight
from segue.runs.starting.rescue import FirstLeg
from segue.runs.starting.run_request import RunRequest, needs_yes
from segue.runs.store import runs_path
from segue.sessions.windows import Windows
from segue.system.config.settings import Settings
from segue.system.files import state
from segue.views import printing
from segue.views.rescues.listing import origin_as_dict
from segue.views.run.block import clean
from segue.views.verdicts import as_json as to_json
from segue.views.verdicts import iso

_RUN, _SESSION = "run-ID", "SESSION-ID"
_LABEL = 12


def show(
    wanted: RunRequest, settings: Settings, *, as_json: bool, first: FirstLeg | None = None
) -> None:
    """Prints what a run would start. `first`: the first leg of a rescue. Like a run, raises
    ConfigError for prompts that cannot be filled."""
    Prompts(settings.prompts)
    found = as_dict(wanted, settings, first)
    printing.say(to_json(found) if as_json else "\n".join(_lines(found)))


def as_dict(
    wanted: RunRequest, settings: Settings, first: FirstLeg | None = None
) -> dict[str, Any]:
    """What a run would start, in its documented form (docs/json.md)."""
    folder = RunFolder(_RUN).path / "leg-001"
    launch = _launch(wanted, str(folder), first)
    sources = settings.policy_sources(wanted.agent)
    usual = Policy()
    return {
        "schema": 1,
        "agent": wanted.agent,
        "cwd": wanted.cwd,
        "task": wanted.task,
        "argv": list(launch.argv),
        "env": {name: _redacted_value(name, value) for name, value in _added(launch).items()},
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
        "notes": [
            *settings.notes,
            *_not_accepted(settings),
            *preflight.warnings(wanted, os.environ, may_start=False),
        ],
        **_rescue(wanted, first),
    }


def _rescue(wanted: RunRequest, first: FirstLeg | None) -> dict[str, Any]:
    if wanted.origin is None or first is None:
        return {}
    return {
        "origin": origin_as_dict(wanted.origin),
        "way": first.way,
        "waits_until": iso(first.waits_until),
        "prompt": first.prompt,
    }


def _not_accepted(settings: Settings) -> Iterator[str]:
    if needs_yes(settings):
        yield "the check is not accepted yet: a run needs --trust-check, or --no-project-check"


def _launch(wanted: RunRequest, folder: str, first: FirstLeg | None) -> Launch:
    return wanted.drive.launch(
        LegOrder(
            command=wanted.command,
            prompt=wanted.task if first is None else first.prompt,
            session_id="" if first is None else first.session_id,
            new_id=_SESSION,
            flags=wanted.flags,
            cwd=wanted.cwd,
            folder=folder,
            env=os.environ,
            halts=wanted.policy.recall_after_compaction,
        )
    )


def _added(launch: Launch) -> dict[str, str]:
    return {**launch.env, "SEGUE_RUN": _RUN, "SEGUE_LEG": f"{_RUN}/1"}


def _redacted_value(name: str, value: str) -> str:
    """The value of a variable, with secrets redacted."""
    return redact(f"{name}={value}")[0].partition("=")[2]


def _marks(wanted: RunRequest) -> dict[str, Any]:
    windows = Windows(os.environ)
    look = Look(session_id="", cwd=wanted.cwd, model=_model(wanted.flags))
    window, enforced = windows.of(wanted.drive.agent, look, wanted.policy)
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
    """The model in the agent's flags; "" if none is named. All agents call the flag --model or
    -m."""
    for place, flag in enumerate(flags):
        name, equals, value = flag.partition("=")
        if name in ("--model", "-m"):
            model = value if equals else next(iter(flags[place + 1 : place + 2]), "")
            return model.rpartition("/")[2]
    return ""


def _lines(found: dict[str, Any]) -> list[str]:
    rows: list[tuple[str, str]] = [("command", shlex.join(found["argv"]))]
    rows += [("", f"in {found['cwd']}")]
    rows += [("environment", f"{k}={shlex.quote(v)}") for k, v in found["env"].items()]
    if found["input_bytes"]:
        more = ", and stays open" if found["input_stays_open"] else ""
        what = "the prompt" if "prompt" in found else "the task"
        rows.append(("input", f"{what}, {found['input_bytes']:,} bytes{more}"))
    if found["check"]:
        rows.append(("check", f"{found['check']}  ({found['check_from']})"))
    rows += [
        ("policy", f"{key} = {toml(v['value'])}  ({v['source']}; default {toml(v['default'])})")
        for key, v in found["policy"].items()
    ] or [("policy", "graduated, all defaults")]
    rows.append(("marks", _marks_text(found["marks"])))
    rows += [
        ("prompts", f"{name}: {path or 'built in'}") for name, path in found["prompts"].items()
    ]
    rows += [("state", found["runs_file"]), ("", found["folder"])]
    rows += [("note", note) for note in found["notes"]]
    lines, before = [], ""
    for name, text in rows:
        label = name if name != before else ""
        before = name or before
        # The command is for pasting, so it stays unchanged, with the task's line breaks.
        shown = text if name == "command" else clean(text)
        lines.append(f"{printing.style(f'{label:<{_LABEL}}', dim=True)}{shown}")
    if "prompt" in found:
        until = f", not before {found['waits_until']}" if found["waits_until"] else ""
        lines += ["", f"The prompt{until}:", "", found["prompt"], ""]
    return [*lines, "Nothing was started and nothing was written."]


def _marks_text(found: dict[str, Any]) -> str:
    if found["hard"] is None:
        return "no handoffs: hard_mark is above 1"
    sure = "" if found["window_from"] != "default" else ", which is a guess"
    return (
        f"handoff at a pause from {found['soft']:,} tokens on, at once from {found['hard']:,};"
        f" of a window of {found['window']:,}{sure}, unless the agent reports another"
    )
