"""How a run ended, for people: one line if all is well, otherwise what the user should know and
do."""

import re
import shlex
import textwrap
from typing import TYPE_CHECKING

import click

from segue.core.policy import Policy
from segue.core.runs.types import Run, RunState
from segue.core.stops.types import Stop
from segue.views import printing, tables
from segue.views.run.block import STATE_COLOURS, clean, counted, cut
from segue.views.run.story import Story, ended_for
from segue.views.verdicts import duration

if TYPE_CHECKING:
    from segue.system.config.settings import Settings

_MARKS = {RunState.DONE: "✓", RunState.FAILED: "✗"}
_TRIED = 8
_EVIDENCE = 3
_LABEL = 12
_WORD = re.compile(r"[a-z_]{5,40}")


def report(
    run: Run,
    *,
    now: float,
    stop: Stop | None = None,
    story: Story | None = None,
    settings: "Settings | None" = None,
    width: int | None = None,
) -> str:
    """The report, with segue's styles, for `printing.say` or `printing.rendered`. `width`: the
    columns to wrap at; None wraps nothing. `settings`: to say where the setting that caused the end
    was set."""
    story = story or Story()
    stop = stop or run.stop
    outcome = run.outcome
    if run.state is RunState.DONE:
        return printing.style("✓ done", fg="green", bold=True) + f": {spend_text(run, story, now)}"
    what = clean(outcome.what) if outcome else ""
    code = f" (exit code {outcome.exit_code})" if outcome else ""
    mark = _MARKS.get(run.state, "!")
    name = "interrupted" if run.interrupted else run.state.value
    head = printing.style(f"{mark} {name}", fg=STATE_COLOURS[run.state], bold=True)
    rows = [
        ("why", [_reason(run, stop)]),
        ("evidence", _evidence(stop)),
        ("tried", _tried(story)),
        ("used", [spend_text(run, story, now)]),
        ("setting", _setting(run, settings)),
        ("next", [clean(line) for line in _advice(run, stop)]),
    ]
    lines = _wrapped(f": {what}{code}" if what else code, head, width, indent=2)
    for name, value in rows:
        for place, text in enumerate(each for each in value if each):
            label = printing.style(f"  {name if place == 0 else '':<{_LABEL - 2}}", dim=True)
            is_to_paste = f" resume {run.id}" in text and " # " in text
            lines += _wrapped(text, label, None if is_to_paste else width)
    lines += [f"{'':<{_LABEL}}{printing.style(command, bold=True)}" for command in commands(run)]
    return "\n".join(lines)


def spend_text(run: Run, story: Story, now: float) -> str:
    """ "3 legs, 2 handoffs, 1 wait (2 h 13 min), 1.2M tokens, $3.20, 3 h 12 min"."""
    parts = [counted(run.leg, "leg"), counted(run.handoffs, "handoff")]
    if story.waits:
        parts.append(f"{counted(story.waits, 'wait')} ({duration(story.waited_s)})")
    parts.append(f"{tables.short(run.tokens)} tokens")
    if run.cost_usd:
        parts.append(f"${run.cost_usd:,.2f}")
    return ", ".join([*parts, duration(now - run.created_at)])


def commands(run: Run) -> list[str]:
    """Commands to paste, the most likely first; each with a description."""
    if run.state is RunState.DONE:
        return []
    found = [(f"segue resume {run.id}", "resume it")]
    reason = run.outcome.reason if run.outcome else ""
    if run.check and reason == "check_failed":
        found.insert(0, (f"cd {shlex.quote(run.cwd)} && {run.check}", "the check"))
    if reason in ("no_progress", "breaker"):
        found.append((f"segue resume --fresh {run.id}", "resume in a new session"))
    found.append((f"segue logs {run.id}", "all that happened"))
    advice = run.outcome.advice if run.outcome else ""
    found = [(command, why) for command, why in found if command not in advice]
    if not found:
        return []
    wide = max(len(clean(command)) for command, _ in found)
    return [f"{clean(command):<{wide}}  # {why}" for command, why in found]


def _reason(run: Run, stop: Stop | None) -> str:
    if stop is None:
        return clean(run.outcome.reason.replace("_", " ")) if run.outcome else ""
    if own := ended_for(stop):
        return f"leg {run.leg}: segue ended it: {own}"
    sure = f", {stop.confidence:.0%} sure" if stop.confidence < 1 else ""
    line = f"leg {run.leg}: {stop.reason.description} ({stop.reason.value}{sure})"
    named = clean(run.outcome.reason) if run.outcome else ""
    return line if named in ("", stop.reason.value) else f"{named.replace('_', ' ')}; {line}"


def _evidence(stop: Stop | None) -> list[str]:
    if stop is None:
        return []
    return [
        f"{cut(clean(e.quote), 160)}  ({clean(e.where)})" if e.where else cut(clean(e.quote), 160)
        for e in stop.evidence[:_EVIDENCE]
        if clean(e.quote)
    ]


def _tried(story: Story) -> list[str]:
    more = len(story.tried) - _TRIED
    return [*([f"… and {more} before"] if more > 0 else []), *story.tried[-_TRIED:]]


def _setting(run: Run, settings: "Settings | None") -> list[str]:
    """The setting that caused the end, its value, and where it was set."""
    change = clean(run.outcome.change) if run.outcome else ""
    if not change:
        return []
    named = [w for w in dict.fromkeys(_WORD.findall(change)) if w in Policy.__struct_fields__]
    sources = settings.policy_sources(run.agent) if settings else {}
    places = [sources[key].in_words for key in named if key in sources]
    return [f"{change} (set by: {', '.join(places)})" if places else change]


def _advice(run: Run, stop: Stop | None) -> list[str]:
    lines = run.outcome.advice.splitlines() if run.outcome else []
    if not lines and stop is not None:
        lines = stop.remediation.splitlines()
    if run.state is RunState.CANCELLED:
        return lines or ["Session ended by user, not auto-resuming"]
    return lines


def _wrapped(text: str, label: str, width: int | None, indent: int = _LABEL) -> list[str]:
    begun = len(click.unstyle(label))
    if width is None or begun + len(text) <= width:
        return [label + text]
    room = max(20, width - indent)
    pad = "·" * (begun - indent)  # the text before the first line, in addition to the indent
    first, *rest = textwrap.wrap(pad + text, room, break_on_hyphens=False) or [""]
    return [label + first[len(pad) :], *(" " * indent + line for line in rest)]
