"""Tests of what an agent's package must do, for authors of such packages:

    from segue.testing.agents import AgentTests

    class TestParrot(AgentTests):
        agent = "parrot"
        records = [{"squawk": "hello", …}, …]  # of one whole session that ended well

Each test names what is missing. `missing` lists it all at once.
"""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from segue import agents
from segue.agents import drives, plugins, terminals
from segue.agents.contracts.counter import Tally
from segue.agents.contracts.drive import LegOrder
from segue.agents.contracts.profile import Profile, Record
from segue.core.sessions.ledger import Ledger
from segue.core.stops.events import Ended, Event, Started, Usage

ODD: tuple[Any, ...] = (
    *({}, {"type": None}, {"type": 7}, {"type": []}, {"message": {"content": "text"}}),
    *({"type": "\x1b[31m"}, {"at": 1e400, "usage": {"input_tokens": -5}}, {"content": [None, 3]}),
)
"""Records that no agent writes."""


def missing(name: str) -> list[str]:
    """What an agent's package lacks, one line each, and what segue cannot do without it."""
    found = []
    try:
        if agents.find(name) is None:
            return [f"profile.py with PROFILE: segue does not know {name!r} at all"]
        profile = agents.find(name)
        if profile is not None and agents.stores().get(name) is None:
            found.append("PROFILE.store: its sessions are not found (segue status, watch)")
        if profile is not None and agents.counter(name) is None:
            found.append("counter.py with COUNTER: its tokens are not counted (segue scan)")
        if profile is not None and agents.signs_of(name) is None:
            found.append("PROFILE.signs: a running one is not seen (segue status, watch)")
        if drives.find(name) is None:
            found.append("drive.py with DRIVE: it cannot be driven (segue run)")
        if terminals.find(name) is None:
            found.append("terminal.py with TERMINAL: it is not typed into (segue watch --auto)")
        if plugins.part(name, "cast", "CAST") is None:
            found.append("cast.py with CAST: it cannot be rehearsed (segue drill)")
    except plugins.BrokenPluginError as fault:
        found.append(str(fault))
    return found


class AgentTests:
    """Derive from this class, and set `agent` (its name) and `records` (one whole session that
    ended well)."""

    agent: ClassVar[str]
    records: ClassVar[Sequence[dict[str, Any]]]

    @property
    def profile(self) -> Profile:
        """The agent's profile, as segue finds it."""
        found = agents.find(self.agent)
        assert found is not None, missing(self.agent)
        return found

    def events(self, records: Sequence[dict[str, Any]]) -> list[Event]:
        """The events that the agent's parser makes from these records."""
        return list(self.profile.parse([Record(data, f"t:{n}") for n, data in enumerate(records)]))

    def test_it_is_listed_under_its_own_name(self) -> None:
        assert self.profile.name == self.agent
        assert self.agent in agents.names()

    def test_it_knows_its_own_records_and_no_others(self) -> None:
        assert any(self.profile.knows(record) for record in self.records), "knows() never says yes"
        assert not any(self.profile.knows(record) for record in ODD), "knows() says yes to anything"

    def test_a_whole_session_tells_its_start_its_size_and_its_end(self) -> None:
        found = self.events(self.records)
        is_named = any(isinstance(event, Started) and event.session_id for event in found)
        assert is_named, "no Started with a session_id: no record names the session"
        is_measured = any(isinstance(event, Usage) and event.used_tokens for event in found)
        assert is_measured, "no Usage with used_tokens: no record says how full the context is"
        has_ended = any(isinstance(event, Ended) and event.ok for event in found)
        assert has_ended, "no Ended(ok=True): no record says that the session ended well"

    def test_every_tail_of_a_session_is_read_without_raising(self) -> None:
        for first in range(len(self.records)):
            assert all(isinstance(event, Event) for event in self.events(self.records[first:]))

    @pytest.mark.parametrize("odd", ODD, ids=lambda odd: json.dumps(odd)[:30])
    def test_odd_records_pass_through(self, odd: dict[str, Any]) -> None:
        assert all(isinstance(event, Event) for event in self.events([odd]))
        mixed = [{**record, **odd} for record in self.records]
        assert all(isinstance(event, Event) for event in self.events(mixed))

    def test_its_counter_agrees_with_its_parser(self) -> None:
        make = agents.counter(self.agent)
        if make is None:
            pytest.skip(f"{self.agent} has no counter")
        tally, ledger = Tally(), Ledger()
        counter = make(tally, ledger)
        lines = b"".join(json.dumps(record).encode() + b"\n" for record in self.records)
        counter.feed(lines, len(lines))
        counter.close()
        sizes = [
            event.used_tokens for event in self.events(self.records) if isinstance(event, Usage)
        ]
        assert bool(len(ledger)) == bool(sizes), "only one of parser and counter sees replies"

    def test_its_drive_starts_new_sessions_and_resumes_old_ones(self) -> None:
        drive = drives.find(self.agent)
        if drive is None:
            pytest.skip(f"{self.agent} cannot be driven")
        order = LegOrder(command=("program",), prompt="do it", cwd="/", folder="/", env={})
        launch = drive.launch(order)
        given = " ".join(launch.argv) + launch.input.decode() + "".join(launch.files.values())
        assert "do it" in given, "nothing passes the prompt to it"
        if drive.resumes:
            again = drive.launch(
                LegOrder(
                    command=("program",), prompt="x", session_id="abc", cwd="/", folder="/", env={}
                )
            )
            given = " ".join(again.argv) + again.input.decode() + "".join(again.files.values())
            assert "abc" in given, "nothing passes the session to resume to it"
