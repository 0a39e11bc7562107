"""The counts of a world, in a form that can be added up over worlds."""

from collections import Counter
from typing import Any

from msgspec import Struct, field


class Figures(Struct, kw_only=True):
    """The figures of docs/report.md for simulated sessions. Shares are stored as counts of whole
    percents, so that their sum does not depend on the order."""

    sessions: int = 0
    runs: int = 0
    done: int = 0
    legs: int = 0
    replies: int = 0
    steps: int = 0
    handoffs: int = 0
    exhaustions: int = 0
    steep_exhaustions: int = 0  # those where one turn added more than the policy leaves room for
    lone_exhaustions: int = 0  # those while no segue drove the run
    compactions: int = 0  # the agents' own
    waits: int = 0
    waited_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    request_percent: Counter[int] = field(default_factory=Counter)
    unused_percent: Counter[int] = field(default_factory=Counter)
    facts: int = 0
    terminal_handoffs: int = 0
    resumes: int = 0
    terminal_percent: Counter[int] = field(default_factory=Counter)
    terminal_compactions: int = 0  # their own, while segue was there to hand over
    steep_compactions: int = 0  # those where one turn added more than the policy leaves room for
    daemons: int = 0  # daemons that were started
    tasks: int = 0
    tasks_done: int = 0

    def add(self, other: "Figures") -> None:
        """Adds another world's figures."""
        for name in self.__struct_fields__:
            mine, more = getattr(self, name), getattr(other, name)
            if isinstance(mine, Counter):
                mine.update(more)
            else:
                setattr(self, name, mine + more)

    def as_object(self) -> dict[str, Any]:
        """The figures in the form of `--json`."""
        return {
            "runs": self.runs,
            "completed": self.done,
            "legs": self.legs,
            "replies": self.replies,
            "facts": self.facts,
            "handoffs": self.handoffs,
            "terminal_handoffs": self.terminal_handoffs,
            "resumes": self.resumes,
            "tasks": self.tasks,
            "tasks_completed": self.tasks_done,
            "daemon_starts": self.daemons,
            "exhaustions": self.exhaustions,
            "exhaustions_without_room": self.steep_exhaustions,
            "exhaustions_without_segue": self.lone_exhaustions,
            "own_compactions": self.compactions,
            "waits": self.waits,
            "waited_s": round(self.waited_s),
            "terminal_compactions": self.terminal_compactions,
            "terminal_compactions_without_room": self.steep_compactions,
            "context_at_request": _requests(self.request_percent),
            "context_at_request_in_terminals": _requests(self.terminal_percent),
            "context_unused": {"median_percent": quantile(self.unused_percent, 0.5)},
            "faults": {name: self.faults[name] for name in sorted(self.faults)},
        }


def in_time(counts: Counter[int]) -> float | None:
    """The share of requests that were read at 90% of the window or less; None if there were
    none."""
    late = sum(n for percent, n in counts.items() if percent > 90)
    return 1 - late / counts.total() if counts.total() else None


def _requests(counts: Counter[int]) -> dict[str, Any]:
    share = in_time(counts)
    return {
        "requests": counts.total(),
        "median_percent": quantile(counts, 0.5),
        "p95_percent": quantile(counts, 0.95),
        "at_most_90_percent": None if share is None else round(share, 4),
    }


def quantile(counts: Counter[int], share: float) -> int | None:
    """The percentage that this share of the counts does not exceed; None if there are no counts."""
    total, passed = counts.total(), 0
    for percent in sorted(counts):
        passed += counts[percent]
        if passed >= share * total:
            return percent
    return None
