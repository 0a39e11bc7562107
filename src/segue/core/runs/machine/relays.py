"""Which agent of a run's list is working, which ones cannot work now, and which one is next."""

from collections.abc import Mapping
from math import inf

from msgspec.structs import replace

from segue.core.runs.types import Member, Out, Run
from segue.core.stops.reasons import StopReason


def with_agent(run: Run, agent: str) -> Run:
    """The run with this agent of its list at work: with its flags, abilities and policy, and
    without what was counted against another agent."""
    member = next((each for each in run.relay if each.agent == agent), None)
    if member is None or agent == run.agent:
        return run
    return replace(
        run,
        agent=agent,
        flags=member.flags,
        abilities=member.abilities,
        policy=member.policy,
        sizes=(),
        limit_tries=0,
        overload_tries=0,
        outage_tries=0,
        outage_since=None,
        failure="",
        failures=0,
        relays=run.relays + 1,
        idle_relays=run.idle_relays + 1,
    )


def without(run: Run, agent: str, until: float | None, why: StopReason) -> Run:
    """The run with this agent unavailable until then; None: for as long as the run lasts."""
    rest = tuple(each for each in run.out if each.agent != agent)
    return replace(run, out=(*rest, Out(agent, until, why)))


def limited(run: Run, limits: Mapping[str, float], at: float) -> Run:
    """The run with what is known about its agents' accounts: until when each is limited."""
    for agent, until in limits.items():
        if at < until and _out_until(run, agent) < until:
            run = without(run, agent, until, StopReason.RATE_LIMIT)
    return run


def next_free(run: Run, at: float) -> str:
    """The next agent of the list that is not limited, after the current one; "" if there is
    none, or if the work has gone round the list more than once without progress."""
    if run.idle_relays >= 2 * len(run.relay):
        return ""
    names = [member.agent for member in run.relay]
    place = names.index(run.agent) + 1 if run.agent in names else 0
    order = [name for name in (*names[place:], *names[:place]) if name != run.agent]
    return next((name for name in order if _out_until(run, name) <= at), "")


def first_free(run: Run) -> tuple[str, float] | None:
    """The other agent that is free first, and when; None if none will be in this run."""
    other_agents = [member.agent for member in run.relay if member.agent != run.agent]
    when = {name: _out_until(run, name) for name in other_agents}
    name = min(when, key=lambda name: when[name], default="")
    return (name, when[name]) if name and when[name] < inf else None


def back(run: Run, at: float) -> str:
    """The agent that takes the work back at a handoff: the first free one of the list, if it
    comes before the current one; "" if there is none, or if the user wants no return."""
    if run.policy.relay_back == "never":
        return ""
    names = [member.agent for member in run.relay]
    before = names[: names.index(run.agent)] if run.agent in names else []
    return next((name for name in before if _out_until(run, name) <= at), "")


def changed(run: Run, relay: tuple[Member, ...] | None, flags: tuple[str, ...] | None) -> Run:
    """The run with another list, or with other flags for the current agent."""
    members = run.relay if relay is None else relay
    if flags is not None:
        members = tuple(
            replace(each, flags=flags) if each.agent == run.agent else each for each in members
        )
    return replace(run, relay=members)


def _out_until(run: Run, agent: str) -> float:
    found = next((each for each in run.out if each.agent == agent), None)
    return 0.0 if found is None else inf if found.until is None else found.until
