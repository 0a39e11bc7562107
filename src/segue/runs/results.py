"""The result of a run, from the machine that has its files: the last message, the changed files,
the diff, and the cost."""

import os
from collections.abc import Mapping, Sequence

from msgspec import Struct

from segue.agents import drives
from segue.core.runs.types import Run
from segue.core.sessions.spend import Spend
from segue.errors import SegueError
from segue.runs.folders import RunFolder
from segue.runs.legs.trackers.spending import spend_by_model
from segue.runs.store.port import StoredLeg
from segue.system.config import prices
from segue.system.git import snapshots
from segue.system.git.snapshots import FileDiff

_MAX_GIT_S = 10.0


class SpendReport(Struct, frozen=True, kw_only=True):
    """The usage of one model; the cost is None for a model without a list price."""

    agent: str
    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None


class RunResult(Struct, frozen=True, kw_only=True):
    """`files` is None if they are unknown; `note` says why."""

    answer: str = ""
    files: tuple[FileDiff, ...] | None = None
    commits: tuple[tuple[str, str], ...] = ()  # short hash and subject, the oldest first
    note: str = ""
    spend: tuple[SpendReport, ...] = ()
    patch: str = ""
    is_cut: bool = False  # the patch is longer
    is_final: bool = False  # the run has ended, and this is complete


def is_here(run: Run) -> bool:
    """Whether this machine has the run's files."""
    return RunFolder(run.id).path.is_dir()


def result_here(
    run: Run, legs: Sequence[StoredLeg], env: Mapping[str, str], *, with_patch: bool = False
) -> RunResult:
    """The result according to this machine's files; for a run on another machine, only what the
    legs report."""
    files, commits, note = changes(run)
    patch, is_cut = "", False
    if with_patch and files:
        try:
            patch, is_cut = patch_of(run)
        except SegueError as fault:
            note = str(fault)
    return RunResult(
        answer=RunFolder(run.id).answer(run.leg),
        files=None if files is None else tuple(files),
        commits=tuple(commits),
        note=note,
        spend=tuple(spend_of(run, legs, env)),
        patch=patch,
        is_cut=is_cut,
        is_final=run.state.is_final,
    )


def spend_of(run: Run, legs: Sequence[StoredLeg], env: Mapping[str, str]) -> list[SpendReport]:
    """Usage by model if the agent's own files have it; otherwise the sum that the legs reported."""
    total: dict[tuple[str, str], SpendReport] = {}
    sessions = ((leg.agent or run.agent, leg.session_id) for leg in legs if leg.session_id)
    for agent, session_id in dict.fromkeys(sessions):
        drive = drives.find(agent)
        if drive is None or drive.session_file is None:
            continue
        path = drive.session_file(session_id, env, run.cwd)
        for model, spend in spend_by_model(drive.agent, path, session_id).items() if path else ():
            # Session by session, as the legs count it: prices may depend on the size.
            key = agent, model
            total[key] = _added(total.get(key), _priced(agent, model, spend))
    agents = {agent for agent, _ in total}
    for agent in dict.fromkeys(leg.agent or run.agent for leg in legs):
        own = [leg for leg in legs if (leg.agent or run.agent) == agent]
        tokens, cost = sum(leg.tokens for leg in own), sum(leg.cost_usd for leg in own)
        if agent not in agents and tokens:
            total[agent, ""] = SpendReport(
                agent=agent, model="", input_tokens=tokens, cost_usd=cost or None
            )
    return [total[key] for key in sorted(total)]


def patch_of(run: Run) -> tuple[str, bool]:
    """The run's changes as a patch, and whether the patch was cut short; "" if there are no
    snapshots. Raises SegueError."""
    taken = snapshots.list_all(run.cwd, run.id, max_s=_MAX_GIT_S)
    if not taken:
        return "", False
    found, is_whole = snapshots.patch(run.cwd, taken[0].commit, taken[-1].commit, max_s=_MAX_GIT_S)
    return found.decode("utf-8", "replace"), not is_whole


def _added(before: SpendReport | None, more: SpendReport) -> SpendReport:
    if before is None:
        return more
    costs = (before.cost_usd, more.cost_usd)
    return SpendReport(
        agent=more.agent,
        model=more.model,
        input_tokens=before.input_tokens + more.input_tokens,
        output_tokens=before.output_tokens + more.output_tokens,
        cache_read_tokens=before.cache_read_tokens + more.cache_read_tokens,
        cache_write_tokens=before.cache_write_tokens + more.cache_write_tokens,
        cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
    )


def _priced(agent: str, model: str, spend: Spend) -> SpendReport:
    cost = prices.cost_usd(model, spend)
    return SpendReport(
        agent=agent,
        model=model,
        input_tokens=spend.input_tokens,
        output_tokens=spend.output_tokens,
        cache_read_tokens=spend.cache_read_tokens,
        cache_write_tokens=spend.cache_write_tokens,
        cost_usd=None if cost is None else float(cost),
    )


def changes(run: Run) -> tuple[list[FileDiff] | None, list[tuple[str, str]], str]:
    """The files that differ from before the run, its commits, and why either is unknown."""
    if not os.path.isdir(run.cwd):
        return None, [], f"{run.cwd} no longer exists, so its changes are unknown"
    try:
        taken = snapshots.list_all(run.cwd, run.id, max_s=_MAX_GIT_S)
        if not taken:
            return None, [], "there are no snapshots, so the changed files are unknown"
        old, new = taken[0].commit, taken[-1].commit
        files = snapshots.files(run.cwd, old, new, max_s=_MAX_GIT_S)
        return files, snapshots.commits(run.cwd, old, new, max_s=_MAX_GIT_S), ""
    except SegueError as fault:
        return None, [], str(fault)
