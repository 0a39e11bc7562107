"""Derives spans from a run's log: the run, its legs, waits and handoffs. Pure: the same log makes
the same spans in any process, so one that continues after a crash extends the same trace.

Names and attributes follow OpenTelemetry's conventions for generative AI where they exist
(`invoke_workflow`, `invoke_agent`, `gen_ai.*`); the others begin with `segue.`. No span contains
the task, the conversation or paths.
"""

import os
from typing import Any

from segue.runs.store.port import Entry
from segue.system.telemetry.types import SpanRecord, plain

_WELL = ("completed", "context_exhausted")
_FINAL = ("done", "failed", "cancelled", "needs-you")


class RunSpans:
    """Takes in a run's entries in order; `add` returns the spans that end with this one."""

    def __init__(self, run_id: str) -> None:
        self._run, self._life = run_id, 0
        self._since: float | None = None
        self._agent = self._project = ""
        self._legs: dict[int, dict[str, Any]] = {}
        self._wait: dict[str, Any] | None = None
        self._waits = self._handoffs = self._ended_legs = 0
        self._asked: dict[str, Any] | None = None
        self._handoff: dict[str, Any] | None = None
        self._reading: dict[str, Any] = {}
        self._tokens, self._cost_usd = 0, 0.0

    def add(self, entry: Entry) -> list[SpanRecord]:
        """The spans that this entry ends."""
        data, found = entry.data, list[SpanRecord]()
        if self._since is None and entry.kind in ("created", "resumed"):
            self._since = entry.at
        if entry.kind == "created":
            run = data.get("run") if isinstance(data.get("run"), dict) else data
            self._agent = str((run or {}).get("agent") or "")
            self._project = os.path.basename(str((run or {}).get("cwd") or "").rstrip("/"))
        leg = self._legs.get(data.get("leg") or 0)
        match entry.kind:
            case "started":
                leg = self._legs.setdefault(data["leg"], {})
                leg |= {"since": entry.at, "session": data.get("session_id") or ""}
            case "named" if leg is not None:
                leg["session"] = data.get("session_id") or ""
            case "read":
                self._reading = data.get("reading") or {}
            case "replied" if self._handoff is not None and self._handoff["leg"] == data["leg"]:
                found.append(self._handed(entry, ""))
            case "legended" if leg is not None and "since" in leg:
                if self._handoff is not None and self._handoff["leg"] == data["leg"]:
                    found.append(self._handed(entry, "the new session did not reply"))
                found.append(self._leg(entry, leg))
        if self._wait is not None and entry.state != "waiting":
            found.append(self._waited(entry))
        for decision in entry.decisions:
            self._decided(entry, decision)
        if entry.state in _FINAL and self._since is not None:
            found.append(self._whole(entry))
        return found

    @property
    def _root(self) -> str:
        return f"run {self._life}"

    def _decided(self, entry: Entry, decision: dict[str, Any]) -> None:
        match decision["decision"]:
            case "startleg":
                attributes = self._legs.setdefault(decision["leg"], {})
                attributes |= {
                    "agent": decision.get("agent") or self._agent,
                    "purpose": decision.get("purpose", "work"),
                    "prompt": decision.get("prompt", "task"),
                }
                if attributes["prompt"] == "continuation" and attributes["purpose"] == "work":
                    asked = self._asked or {"since": entry.at, "used": None, "fraction": None}
                    self._handoff = {**asked, "leg": decision["leg"], "to": attributes["agent"]}
                    self._handoff["strategy"] = decision.get("strategy", "")
                    self._asked = None
            case "ask" | "compose" if self._asked is None:
                used, window = _size(self._reading), self._reading.get("window_tokens") or 0
                self._asked = {
                    "since": entry.at,
                    "used": used or None,
                    "fraction": round(used / window, 4) if window else None,
                }
            case "waituntil" if self._wait is None:
                self._wait = {"since": entry.at, **decision["wait"]}

    def _leg(self, entry: Entry, leg: dict[str, Any]) -> SpanRecord:
        data, stop = entry.data, entry.data["stop"]
        own = stop.get("ended_for") or ""
        reason = str(stop["reason"])
        agent = leg.get("agent") or self._agent
        is_error = reason not in _WELL and not own
        self._tokens += data.get("tokens") or 0
        self._cost_usd += data.get("cost_usd") or 0.0
        self._ended_legs += 1
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": leg.get("session"),
            "error.type": reason if is_error else "",
            "segue.run.id": self._run,
            "segue.leg": data["leg"],
            "segue.leg.purpose": leg.get("purpose"),
            "segue.leg.prompt": leg.get("prompt"),
            "segue.stop.reason": reason,
            "segue.stop.confidence": stop.get("confidence"),
            "segue.stop.ended_for": own,
            "segue.progressed": data.get("progressed", False),
            "segue.tokens": data.get("tokens", 0),
            "segue.cost_usd": data.get("cost_usd", 0.0),
        }
        used, window = _size(self._reading), self._reading.get("window_tokens") or 0
        if used:
            attributes |= {"segue.context.tokens": used, "segue.context.window": window}
        return self._span(
            entry,
            f"leg {data['leg']}",
            f"invoke_agent {agent}",
            leg["since"],
            attributes,
            error=reason if is_error else "",
        )

    def _waited(self, entry: Entry) -> SpanRecord:
        wait, self._wait = self._wait or {}, None
        self._waits += 1
        why = str(wait.get("why") or "unknown")
        attributes = {
            "segue.run.id": self._run,
            "segue.wait.reason": why,
            "segue.wait.until": wait.get("until"),
            "segue.wait.tries": wait.get("tries", 1),
            "segue.wait.is_guess": wait.get("reset_at") is None,
        }
        return self._span(entry, f"wait {self._waits}", f"wait {why}", wait["since"], attributes)

    def _handed(self, entry: Entry, error: str) -> SpanRecord:
        handoff, self._handoff = self._handoff or {}, None
        self._handoffs += 1
        attributes = {
            "segue.run.id": self._run,
            "segue.handoff.to_agent": handoff["to"],
            "segue.handoff.to_leg": handoff["leg"],
            "segue.handoff.strategy": handoff["strategy"],
            "segue.context.tokens": handoff["used"],
            "segue.context.fraction": handoff["fraction"],
            "error.type": "no_reply" if error else "",
        }
        name = f"handoff {self._handoffs}"
        return self._span(entry, name, "handoff", handoff["since"], attributes, error=error)

    def _whole(self, entry: Entry) -> SpanRecord:
        outcome: dict[str, Any] = next(
            (each["outcome"] for each in entry.decisions if each["decision"] == "finish"), {}
        )
        is_error = entry.state in ("failed", "needs-you")
        reason = str(outcome.get("reason") or entry.state)
        attributes = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": "segue run",
            "gen_ai.agent.name": self._agent,
            "error.type": reason if is_error else "",
            "segue.run.id": self._run,
            "segue.run.state": entry.state,
            "segue.run.reason": reason,
            "segue.run.exit_code": outcome.get("exit_code"),
            "segue.run.legs": self._ended_legs,
            "segue.run.handoffs": self._handoffs,
            "segue.run.waits": self._waits,
            "segue.project": self._project,
            "segue.tokens": self._tokens,
            "segue.cost_usd": round(self._cost_usd, 6),
        }
        name, since = self._root, self._since or entry.at
        error = reason if is_error else ""
        made = self._span(
            entry, name, "invoke_workflow segue run", since, attributes, error=error, parent=""
        )
        self._life += 1  # resumed later, it is another span of the same trace
        self._since = None
        return made

    def _span(
        self,
        entry: Entry,
        name: str,
        title: str,
        since: float,
        attributes: dict[str, Any],
        *,
        error: str = "",
        parent: str | None = None,
    ) -> SpanRecord:
        return SpanRecord(
            trace=self._run,
            name=name,
            parent=self._root if parent is None else parent,
            title=title,
            since=since,
            until=max(since, entry.at),
            attributes=plain(attributes),
            error=error,
            seq=entry.seq,
        )


def _size(reading: dict[str, Any]) -> int:
    parts = ("input_tokens", "cache_write_tokens", "cache_read_tokens", "output_tokens")
    return sum(int(reading.get(part) or 0) for part in parts)
