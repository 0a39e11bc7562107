"""What a run did, for its page: files, the diff, commits, and what each model cost."""

import os
from typing import Any

from segue.core.runs.types import Run
from segue.dashboard import words
from segue.dashboard.sources import Source
from segue.fleet import output
from segue.runs.results import SpendReport, is_here
from segue.views import diffs, tables

_FILES = 200
_LINES = 2_000
_KINDS = {"+": "added", "-": "removed", "@": "place"}


def work(source: Source, run: Run) -> dict[str, Any]:
    """A run's work, from git and session files. That is slow, so the result is cached until the run
    or, while it is not settled, any run or note changes."""
    # A run on another machine may publish its last changes after it has ended.
    is_settled = run.state.is_final and is_here(run)
    version = (run.state, run.leg) if is_settled else source.versions
    return source.cached(f"work {run.id}", version, lambda: _work(source, run))


def _work(source: Source, run: Run) -> dict[str, Any]:
    with source.store() as store:
        found = output.result_of(store, run, store.legs(run.id), os.environ, with_patch=True)
    files = found.files
    patch = _patch(found.patch.splitlines())
    return {
        "note": words.line(found.note) if files is None else "",
        "total": diffs.total(list(files)) if files else "",
        "files": [
            {"path": words.line(each.path, 200), "count": diffs.count(each)}
            for each in (files or ())[:_FILES]
        ],
        "more": max(0, len(files or ()) - _FILES),
        "commits": [
            {"id": words.line(id, 12), "subject": words.line(subject, 120)}
            for id, subject in found.commits
        ],
        "patch": patch,
        "is_cut": found.is_cut or found.patch.count("\n") > _LINES,
        "command": f"segue diff {run.id}",
        "spend": [_spend_cells(each) for each in found.spend],
    }


def _patch(lines: list[str]) -> list[dict[str, str]]:
    shown = []
    for line in lines[:_LINES]:
        if line.startswith("index "):
            continue
        is_head = line.startswith(("diff ", "+++ ", "--- ", "new file", "deleted file", "rename "))
        kind = "head" if is_head else _KINDS.get(line[:1], "")
        shown.append({"kind": kind, "text": words.text(line, 400)})
    return shown


def _spend_cells(each: SpendReport) -> dict[str, str]:
    cost = "no list price" if each.cost_usd is None else f"${each.cost_usd:,.2f}"
    if not each.model:  # the agent's files have only a total
        cells = dict.fromkeys(("output", "cache_read", "cache_write"), "–")
        all_of_it = f"{tables.short(each.input_tokens)} in all"
        agent = words.line(each.agent, 30)
        return {**cells, "model": "unknown", "agent": agent, "input": all_of_it, "cost": cost}
    return {
        "model": words.line(each.model, 60),
        "agent": words.line(each.agent, 30),
        "input": tables.short(each.input_tokens),
        "output": tables.short(each.output_tokens),
        "cache_read": tables.short(each.cache_read_tokens),
        "cache_write": tables.short(each.cache_write_tokens),
        "cost": cost,
    }
