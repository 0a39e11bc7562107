"""No shape of a record makes a parser raise.

The words of which odd records are made are those that each parser itself looks for: every string
in its source. So the fuzz goes where the code is, and follows it when it changes.
"""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue import agents
from segue.agents.contracts.profile import Profile, Record
from segue.core.stops.events import Event


@cache
def words(name: str) -> tuple[str, ...]:
    file = import_module(f"segue.agents.{name}.profile").__file__
    assert file is not None
    strings = (
        node.value
        for node in ast.walk(ast.parse(Path(file).read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    found = {word for string in strings for word in string.split() if len(word) <= 40}
    return tuple(sorted(found | {"type", "message", "content", "text", "id", "timestamp", "role"}))


@cache
def records(name: str) -> st.SearchStrategy[dict[str, Any]]:
    keys = st.sampled_from(words(name))
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | keys,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=8,
    )
    kinds = st.fixed_dictionaries({}, optional={"type": keys, "subtype": keys, "role": keys})
    fields = st.dictionaries(keys, values, max_size=6)
    return st.builds(lambda odd, kind: {**odd, **kind}, fields, kinds)


@pytest.mark.parametrize("name", agents.BUILT_IN)
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_odd_records_become_events_and_never_raise(name: str, data: st.DataObject) -> None:
    profile = agents.find(name)
    assert isinstance(profile, Profile)
    odd = data.draw(st.lists(records(name), max_size=5))
    found = list(profile.parse([Record(record, "stdout:1") for record in odd]))
    assert all(isinstance(event, Event) for event in found)
    for record in odd:
        assert profile.knows(record) in (True, False)
        assert profile.resembles is None or profile.resembles(record) in (True, False)
