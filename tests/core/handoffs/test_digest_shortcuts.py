"""What a digest skips makes no difference, and no secret gets past it."""

import random
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hostile.secret_kinds import FOLDER, Kind, kinds

from segue.core.handoffs.checkpoint import clean
from segue.core.handoffs.compose import compose
from segue.core.handoffs.digest import Builder, Digest, left_out
from segue.core.handoffs.digest.forms import UsualForms
from segue.core.secrets.redact import redact
from segue.core.stops.events import Event, Prompt, Reply, ToolCall, ToolResult

FILES = sorted(path.name for path in FOLDER.glob("*.txt") if path.name != "ordinary.txt")
FORMS = (
    "2026-11-0{}T10:{}:{}Z INFO handled request {}",
    "2026-11-0{}T10:{}:{}Z WARN error: cannot poll shard {}",
    "{} | {} rows, port is {}",
    "",
)


def run(command: str, printed: str, *, code: int = 0) -> list[Event]:
    return [
        ToolCall(name="Bash", call_id="c", command=command, argument=command),
        ToolResult(call_id="c", printed=printed, exit_code=code, failed=code != 0),
    ]


def log(draw: random.Random, lines: int, forms: tuple[str, ...] = FORMS[:2]) -> list[str]:
    return [draw.choice(forms).format(*(draw.randrange(99) for _ in range(4)))
            for _ in range(lines)]  # fmt: skip


def work(draw: random.Random) -> Iterator[Event]:
    """Logs of few forms, some with a line of their own, and replies that name things in them."""
    forms = tuple(draw.sample(FORMS, 2))
    for number in range(draw.randrange(3, 12)):
        lines = log(draw, draw.randrange(20, 120), forms)
        if draw.random() < 0.3:
            lines.insert(draw.randrange(len(lines)), f"server listening on port 61{number}9")
        if draw.random() < 0.4:
            lines.append("")
        command = f"make {draw.randrange(4)}"
        yield from run(command, "\n".join(lines), code=draw.randrange(2))
        named = draw.choice(("request 4", "port is 1", f"61{number}9", "shard 12", "nothing 7"))
        yield Reply(text=f"I looked at `{named}` and {draw.randrange(99)}0123.")


def digests(events: list[Event]) -> list[Digest]:
    """What is known after each event, and what is known at the end if nobody asked before."""
    builder, unasked = Builder(), Builder()
    found = []
    for event in events:
        builder.feed(event)
        unasked.feed(event)
        found.append(builder.digest())
    return [*found, unasked.digest()]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_log_of_usual_forms_is_digested_as_if_every_line_were_looked_at(seed: int) -> None:
    events = list(work(random.Random(seed)))
    with patch.object(UsualForms, "are_all_of", lambda *_: False):
        slowly = digests(events)
    assert digests(events) == slowly


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32))
def test_events_that_wait_are_digested_as_if_none_did(seed: int) -> None:
    events = list(work(random.Random(seed)))
    with patch("segue.core.handoffs.digest.builder._WAITING", 1):
        at_once = digests(events)
    assert digests(events) == at_once


def test_what_was_said_before_segue_says_the_same_is_news() -> None:
    builder = Builder()
    builder.feed(Prompt(text="Use tabs."))
    builder.tell("Use tabs.")
    assert [prompt.text for prompt in builder.digest().prompts] == ["Use tabs."]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(["a1", "b22", "", "c 3 c", "new 4"]), max_size=40))
def test_data_of_usual_forms_has_no_other_line_and_few_forms(lines: list[str]) -> None:
    usual = UsualForms()
    for form in (b"a", b"c  c"):
        usual.add(form, 40)
    data = "\n".join(lines).translate(str.maketrans("", "", "1234")).encode()
    forms = data.split(b"\n")
    if usual.are_all_of(forms):
        if usual.others(dict.fromkeys(forms).keys()):
            assert forms.pop() == b""
        assert set(forms) <= {b"a", b"c  c"}
        assert len(forms) >= 8


@pytest.mark.parametrize("file", FILES)
def test_no_secret_that_redaction_knows_is_in_what_a_digest_tells(file: str) -> None:
    """Wherever it stands: in the user's and the agent's words, in a command, in output of any
    length. At the end; after every event, for one kind in ten."""
    for number, kind in enumerate(kinds(file=file)):
        if kind.survivors(redact(kind.text)[0]):
            continue  # what redaction finds is measured elsewhere
        builder = Builder()
        for event in conversation(kind):
            builder.feed(event)
            if number % 10 == 0:
                told = left_out(builder.digest(), "", window_tokens=2_000_000)
                assert not kind.survivors(told), (event, told)
        digest = builder.digest()
        told = left_out(digest, "", window_tokens=2_000_000)
        assert not kind.survivors(told), (kind, told)
        kept = clean(compose("task", digest=digest, window_tokens=2_000_000))[0]
        assert not kind.survivors(str(kept)), (kind, kept)


USUAL = [run(f"make {number}", "\n".join(log(random.Random(number), 50))) for number in range(2)]


def conversation(kind: Kind) -> Iterator[Event]:
    yield from (event for events in USUAL for event in events)
    yield Prompt(text="begin")
    yield Prompt(text=f"Look:\n{kind.text}")
    yield Reply(text=kind.text)
    yield from run("./short", kind.text)
    yield from run(kind.text, "ok")
    before, after = (log(random.Random(number), 30) for number in (3, 4))
    yield from run("./inside", "\n".join([*before, kind.text, *after]))
    yield Reply(text="Done, see 4711 and `INFO`.")
    yield from run("./fails", "\n".join([*before, "error", kind.text, *after]), code=1)
    yield ToolCall(name="Task", call_id="t", argument="find it")
    yield ToolResult(call_id="t", printed=kind.text)
