"""`segue tune`: where the marks should be, from the sessions of this machine."""

from collections.abc import Mapping
from difflib import unified_diff

import click

from segue.cli.support.numbers import Decimal
from segue.core.sessions.forecasts.tuning import LATE, History, advise
from segue.core.sessions.types import Session
from segue.views import printing, tuning
from segue.views.machine import Machine, list_sessions, say_notes, sizes_of, with_machine
from segue.views.tuning import Kind, Tuned

_DAYS = 30
_DAY_S = 86_400.0
_WORTH = 0.02  # a change of a mark smaller than this is not suggested

_Groups = dict[tuple[Kind, str], list[tuple[Session, History]]]


@click.command()
@click.option(
    "--max-late",
    type=Decimal(0.1, 50),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="How many handoffs may come late: above 90% of the window.",
)
@click.option(
    "--apply", is_flag=True, help="Write the marks to config.toml, after showing the diff."
)
@click.option("--yes", is_flag=True, help="With --apply: do not ask.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(max_late: float, apply: bool, yes: bool, as_json: bool) -> None:
    """Suggest marks for each agent, model and project, based on how its sessions of the last 30
    days have grown: as high as possible with few late handoffs."""

    def look(machine: Machine) -> _Groups:
        since = machine.now - _DAYS * _DAY_S
        sessions = list_sessions(machine, since)
        return _groups(sessions, sizes_of(machine, sessions))

    machine, groups = with_machine(look, with_processes=False)
    say_notes(machine)
    tuned = _tuned(machine, groups, max_late / 100)
    if as_json:
        printing.say_json(tuning.as_object(tuned, days=_DAYS, max_late=max_late / 100))
    else:
        lines = tuning.for_people(tuned, days=_DAYS, max_late=max_late / 100)
        printing.say("\n".join(lines))
    if apply:
        _apply(tuned, is_sure=yes)


def _groups(sessions: list[Session], sizes: Mapping[str, tuple[int, ...]]) -> _Groups:
    groups: _Groups = {}
    for session in sessions:
        found = sizes.get(session.path)
        reading = session.reading
        if found is None or reading is None or len(found) < 2:
            continue
        window = reading.window_tokens
        history = History(sizes=found, window_tokens=window, limit=_limit(session))
        keys: list[tuple[Kind, str]] = [("agents", session.agent)]
        keys += [("models", session.model)] if session.model else []
        keys += [("projects", session.cwd)] if session.cwd else []
        for key in keys:
            groups.setdefault(key, []).append((session, history))
    return groups


def _tuned(machine: Machine, groups: _Groups, max_late: float) -> list[Tuned]:
    found: list[Tuned] = []
    order: tuple[Kind, ...] = ("agents", "models", "projects")
    for kind, name in sorted(groups, key=lambda key: (order.index(key[0]), key[1])):
        members = groups[kind, name]
        session = members[0][0]
        policy = session.policy
        if kind == "agents":
            policy = machine.policies.policy(session.agent, "", "/")
        gap = max(0.0, policy.hard_mark - policy.soft_mark)
        advice = advise(
            (history for _, history in members),
            now_mark=policy.hard_mark,
            max_late=max_late,
        )
        hard = advice.hard_mark
        # Leaves out advice that the advice for all of its agents already covers.
        names = set() if kind == "agents" else {member.agent for member, _ in members}
        above = [each for each in found if each.kind == "agents" and each.name in names]
        # A mark that is almost the best one stays, unless too many handoffs are late with it.
        stays = advice.late_now is None or advice.late_now <= max_late
        stays = stays and _is_near(hard, policy.hard_mark)
        by_agent = (
            bool(above)
            and not stays
            and all(
                each.hard_now == policy.hard_mark and _is_near(hard, each.hard_mark)
                for each in above
            )
        )
        found.append(
            Tuned(
                kind=kind,
                name=name,
                advice=advice,
                soft_now=policy.soft_mark,
                hard_now=policy.hard_mark,
                hard_mark=hard,
                soft_mark=None if hard is None else round(hard - gap, 2),
                is_needed=hard is not None and not stays and not by_agent,
                by_agent=by_agent,
            )
        )
    return found


def _is_near(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and abs(one - other) < _WORTH


def _limit(session: Session) -> float:
    """The share of the window above which a request for a handoff is late. If the agent compacts or
    stops by itself at some size, that is at least a checkpoint's reserve below it."""
    reading, enforced = session.reading, session.enforced_tokens
    if enforced is None or reading is None or reading.window_tokens <= 0:
        return LATE
    return min(LATE, (enforced - session.policy.reserve_tokens) / reading.window_tokens)


def _apply(tuned: list[Tuned], *, is_sure: bool) -> None:
    from segue.system.config import config
    from segue.system.config.marks_file import with_marks, write

    path = config.user_file()
    needed = [each for each in tuned if each.is_needed and each.hard_mark and each.soft_mark]
    if not needed:
        printing.say("nothing to apply")
        return
    old = config.read(path).text
    new = old
    for each in needed:
        marks = {"soft_mark": each.soft_mark or 0.0, "hard_mark": each.hard_mark or 0.0}
        new = with_marks(new, each.kind, each.name, marks)
    lines = unified_diff(old.splitlines(), new.splitlines(), str(path), str(path), lineterm="")
    printing.say("\n".join(lines))
    if not is_sure and not printing.confirm(f"Write this to {path}?"):
        printing.say("nothing was written")
        return
    printing.say(f"written: {write(new)}")
