"""Scenario files: ours are valid, and an invalid one is reported in one line."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect
from support.agents.simulated import Agent, result, supervise

from segue.core.sessions.spend import Spend
from segue.drill.model.ask import Call, Kind, Part
from segue.drill.scenarios import load
from segue.drill.scenarios.types import Scenario
from segue.errors import InputError

FILE = Path("dir/my.toml")
DOCS = Path(__file__).parents[2] / "docs" / "scenarios.md"


def parse(text: str) -> Scenario:
    return load.parse(f'about = "a test"\n{text}', FILE)


# Ours


def test_all_that_were_promised_are_there() -> None:
    assert set(load.names()) == {
        "facts-compacted-away",
        "facts-from-the-user",
        "facts-never-asked",
        "facts-told-once",
        "success",
        "window-fills-slowly",
        "window-fills-at-once",
        "too-long-first",
        "too-long-no-compaction",
        "three-exhaustions",
        "short-rate-limit",
        "plan-limit",
        "overloaded-then-fine",
        "dropped-streams",
        "silent-hang",
        "crash-in-tool",
        "user-interrupt",
        "turn-limit",
        "auth-failure",
        "billing",
    }


@pytest.mark.parametrize("name", load.names())
@pytest.mark.parametrize("window", [200_000, 1_048_576])
def test_with_an_ideal_supervisor_ours_end_as_they_expect(name: str, window: int) -> None:
    scenario = load.load(name)
    assert scenario.name == name
    assert 10 < len(scenario.about) <= 80
    agent = Agent(scenario, window)
    events = list(scenario.events)
    ended = []

    def on_call(call: Call) -> Part | None:
        if not events or not call.command.endswith(f"step {events[0].in_step}"):
            return None
        ended.append(events.pop(0).act)
        return result(call, "[Tool call interrupted: the session ended]")

    agent.on_call = on_call
    end = supervise(agent)
    done = scenario.expects.ends == "done"
    assert agent.world.check(finished=done).is_whole
    if done or end != "done":
        assert end == (scenario.expects.reason or "done")
    else:
        # What only an agent that stops can show: by the user's will, or by its number of turns.
        assert ended == ["interrupt"] or (scenario.max_turns or 99) < scenario.job.steps
    assert agent.exhaustions == EXHAUSTIONS.get(name, 0)
    # Nobody waits long for a scenario, but for agents that have their own ways.
    assert agent.now - 1_800_000_000 < 15
    assert scenario.limit_s <= 120


EXHAUSTIONS = {
    "facts-compacted-away": 1,
    "facts-from-the-user": 1,
    "facts-never-asked": 1,
    "facts-told-once": 1,
    "window-fills-slowly": 1,
    "window-fills-at-once": 1,
    "too-long-first": 1,
    "too-long-no-compaction": 1,
    "three-exhaustions": 3,
}


def test_where_no_summary_is_to_be_had_the_request_for_one_is_refused() -> None:
    agent = Agent(load.load("too-long-no-compaction"))
    answers = [agent.ask(Kind.COMPACTION) for _ in range(9)]
    assert {answer.refusal and answer.refusal.fault for answer in answers} == {"too_long"}


# Others'


def test_a_file_may_lie_anywhere_and_gives_the_name(tmp_path: Path) -> None:
    file = tmp_path / "My Night.toml"
    file.write_bytes(b'\xef\xbb\xbfabout = "x"\r\n')
    for given_ in (file, str(file)):
        assert load.load(given_) == Scenario(name="my-night", about="x")


def test_for_ever_and_once_are_words() -> None:
    rules = parse(
        '[[rules]]\nfault="auth"\ntimes="once"\n[[rules]]\nfault="auth"\ntimes="for ever"\n'
    ).rules
    assert [rule.times for rule in rules] == [1, None]


def test_turns_become_replies() -> None:
    turns = parse(
        '[[turns]]\ntext="a"\ncommand="ls"\nusage={input_tokens=1, cache_read_tokens=2}\n'
        '[[turns]]\ncommands=["b", "c"]\n[[turns]]\nstop="length"\n'
    ).turns
    assert [[call.command for call in turn.calls] for turn in turns] == [["ls"], ["b", "c"], []]
    assert turns[0].spend == Spend(input_tokens=1, cache_read_tokens=2)
    assert turns[2].ends_with == "length"


RULE = '[[rules]]\nfault="auth"\n'
FACT = "[[job.facts]]\nkind="
MISTAKES = {
    "about = 1": "about: must be a string, not a whole number",
    "bout = 'x'": "bout: no such key; did you mean about?",
    "about = ''": "about: must be one line",
    "x": "not TOML: ",
    "about = 'x'\nschema = 2": "schema: 2 is unknown",
    "about = 'x'\nname = 'A b'": "name: must be small letters",
    "about = 'x'\nrules = 3": "rules: must be an array of tables: write [[rules]]",
    "about = 'x'\nturns = {}": "turns: must be an array of tables: write [[turns]]",
    "about = 'x'\nrules = [3]": "rules[1]: must be a table: write [[rules]]",
    "about = 'x'\njob = []": "job: must be a table: write [job]",
    "about = 'x'\nlimit_s = 0": "limit_s: must be more than 0",
    "about = 'x'\nlimit_s = nan": "limit_s: must be more than 0",
    "about = 'x'\nmax_turns = 0": "max_turns: must be 1 or more",
    "about = 'x'\nslow_for = ['clod']": "slow_for[1]: must be one of rehearsal, rehearsal-codex",
    "about = 'x'\nslow_limit_s = 9": "slow_limit_s: needs slow_for",
    "about = 'x'\n[options.clod]": "options.clod: must be one of",
    "about = 'x'\n[job]\nstep = 3": "job.step: no such key; did you mean steps?",
    "about = 'x'\n[job]\nsteps = 0": "job.steps: must be between 1 and 1000",
    "about = 'x'\n[job]\nsteps = true": "job.steps: must be a whole number, not a boolean",
    "about = 'x'\n[job]\nspike_step = 9": "job.spike_step: there is no step 9: the last is 8",
    "about = 'x'\n[job]\nstep_s = inf": "job.step_s: must be a time",
    "about = 'x'\n[job]\noutput_bytes = -1": "job.output_bytes: must be between 0",
    FACT + "'printed'\ntold_in=9\nneeded_from=9": "job.facts[1].told_in: there is no step 9",
    FACT + "'told'\ntold_in=0\nneeded_from=5": "job.facts[1].told_in: there is no step 0",
    FACT + "'told'\ntold_in=2\nneeded_from=5": "job.facts[1].kind: a step ends before the user",
    FACT + "'corrected'\ntold_in=2\nneeded_from=5": "job.facts[1].changed_in: a fact that changes",
    FACT + "'told'\ntold_in=2\nchanged_in=3\nneeded_from=5": "job.facts[1].changed_in: is only",
    FACT + "'forbidden'\ntold_in=0\nneeded_from=9": "job.facts[1].needed_from: must be after",
    "about = 'x'\n[contxt]": "contxt: no such key; did you mean context?",
    "about = 'x'\n[context]\nfills_after_steps = 0": "context.fills_after_steps: must be more",
    "about = 'x'\n[context]\nwindow_tokens = -5": "context.window_tokens: must be between",
    RULE + "kind='mian'": "rules[1].kind: 'mian' is unknown; did you mean main?",
    RULE + "kind='count'": "rules[1].kind: a count is always answered",
    RULE + "text='hello'": "rules[1]: fault refuses and text replies: only one can be",
    "[[rules]]\nfault='to_long'": "rules[1].fault: 'to_long' is unknown; did you mean too_long?",
    "[[rules]]\nfault='zzz'": "rules[1].fault: 'zzz' is unknown; it is one of auth, bad_request",
    RULE + "delivery='drop'": "rules[1].delivery: fault comes whole",
    RULE + "times=0": 'rules[1].times: must be 1 or more, or "for ever"',
    RULE + "times='forever'": "rules[1].times: must be a number, 'once' or 'for ever'",
    RULE + "before_step=9": "rules[1].before_step: there is no step 9: the last is 8",
    RULE + "before_step=0": "rules[1].before_step: there is no step 0",
    RULE + "befor_step=2": "rules[1].befor_step: no such key; did you mean before_step?",
    RULE + "kind='title'\nbefore_step=2": "rules[1].before_step: a request of kind title does no",
    RULE + "before_step=1\n[[turns]]\ntext='x'": "rules[1].before_step: turns take the place",
    RULE + "status=99": "rules[1].status: must be between 200 and 599",
    RULE + "after_requests=-1": "rules[1].after_requests: must be 0 or more",
    RULE + "retry_after_s=-1": "rules[1].retry_after_s: must be a time",
    RULE + "in_stream=true\nstatus=400": "rules[1].in_stream: a stream that started successfully",
    RULE + "usage={input_token=3}": "rules[1].usage.input_token: no such key; did you mean input",
    RULE + 'headers={"a b"="c"}': "rules[1].headers.'a b': is not a header",
    RULE + 'headers={a="b\\r\\nc: d"}': "rules[1].headers.a: is not a header",
    RULE + "headers={Content-Length='3'}": "rules[1].headers.Content-Length: is the server's own",
    "[[rules]]": "rules[1]: changes nothing",
    "[[rules]]\nkind='title'\nbefore_step=1": "rules[1]: changes nothing",
    "[[rules]]\ntext='x'\nretry_after_s=3": "rules[1].retry_after_s: belongs to a fault",
    "[[rules]]\ntext='x'\nmessage='y'": "rules[1].message: belongs to a fault",
    "[[rules]]\ncommand='x'\nstop='end'": "rules[1].stop: a reply with a command stops",
    "[[rules]]\ntext='x'\nstop='tool'": 'rules[1].stop: "tool" needs a command',
    "[[rules]]\nusage={output_tokens=-1}": "rules[1].usage: must not be negative",
    RULE
    + "times='for ever'\n"
    + RULE: "rules[2]: never matches: rules[1] matches everything before it",
    RULE + "times='for ever'\n" + RULE + "kind='continuation'": "rules[2]: never matches",
    "[[turns]]\ncommand='a'\ncommands=['b']": "turns[1]: command and commands: one",
    "[[turns]]\ncomand='a'": "turns[1].comand: no such key; did you mean command?",
    "[[turns]]\ntext=5": "turns[1].text: must be a string, not a whole number",
    "[[turns]]\ncommand='a'\nstop='end'": "turns[1].stop: a turn with a command stops",
    "[[turns]]\nstop='tool'": 'turns[1].stop: "tool" needs a command',
    "[[turns]]\nusage={input_tokens=-1}": "turns[1].usage: must not be negative",
    "[[turns]]\n[context]\nfills_after_steps=2": "context.fills_after_steps: turns take the place",
    "[[events]]\nact='kil'\nin_step=1": "events[1].act: 'kil' is unknown; did you mean kill?",
    "[[events]]\nact='kill'": "events[1]: lacks the key in_step",
    "[[events]]\nact='kill'\nin_step=1": "events[1].in_step: a step ends too soon",
    "[job]\nstep_s=1\n[[events]]\nact='kill'\nin_step=9": "events[1].in_step: there is no step 9",
    "[job]\nstep_s=1\n[[turns]]\n[[events]]\nact='kill'\nin_step=1": "events[1].in_step: no turn",
    "[expects]\nends='stoped'": "expects.ends: 'stoped' is unknown; did you mean stopped?",
    "[expects]\nends='stopped'": "expects.reason: must be one of rate_limit",
    "[expects]\nreason='auth'": 'expects.reason: belongs to ends = "stopped"',
}


@pytest.mark.parametrize("text", MISTAKES, ids=lambda text: text.replace("\n", " ")[-40:])
def test_a_mistake_is_one_line_with_the_file_the_key_and_what_is_wrong(text: str) -> None:
    if "about" not in text and "bout" not in text and text != "x":
        text, told = f"about = 'x'\n{text}", MISTAKES[text]
    else:
        told = MISTAKES[text]
    with pytest.raises(InputError) as raised:
        load.parse(text, FILE)
    assert str(raised.value).startswith(f"dir/my.toml: {told}")
    assert "\n" not in str(raised.value)


def test_what_hides_nothing_is_not_a_contradiction() -> None:
    text = RULE + "times='for ever'\nbefore_step=2\n" + RULE + "before_step=3\n" + RULE
    assert len(parse(text).rules) == 3
    assert len(parse(RULE + "after_requests=2\ntimes='for ever'\n" + RULE).rules) == 2


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("sucess", "no scenario 'sucess': did you mean success?"),
        ("zzzz", "no scenario 'zzzz': `segue drill --list` lists"),
        ("", "no scenario ''"),
        ("../success", "../success: no such file"),
        ("none.toml", "none.toml: no such file"),
        ("a\0b.toml", "a\\x00b.toml: cannot be read"),
        ("./", ".: cannot be read"),
        ("x/" * 3000, "x/x/"),
    ],
)
def test_an_invalid_name_is_one_line(
    name: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        load.load(name)
    assert str(raised.value).startswith(told)
    assert "\n" not in str(raised.value)


# Any file


def attempt(text: str) -> None:
    told = FILE.as_posix() + ": "
    try:
        load.parse(text, FILE)
    except InputError as fault:
        told = str(fault)
    assert "\n" not in told
    assert told.startswith("dir/my.toml: ")


@given(st.text())
def test_any_text_is_a_scenario_or_one_line(text: str) -> None:
    attempt(text)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_scenario_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file = tmp_path_factory.mktemp("any") / "any.toml"
    file.write_bytes(content)
    told = ""
    try:
        load.load(file)
    except InputError as fault:
        told = str(fault)
    assert "\n" not in told


def test_what_breaks_a_parser_is_one_line() -> None:
    for text in ("a = " + "[" * 100_000, "a = " + "1" * 5_000, "a = 2021-02-31", "a" * 10**6):
        attempt(text)


def keys(type_: inspect.Type) -> set[str]:
    """All keys below a type."""
    if isinstance(type_, inspect.StructType):
        inner = (keys(field.type) for field in type_.fields)
        return {field.encode_name for field in type_.fields}.union(*inner)
    if isinstance(type_, inspect.ListType):
        return keys(type_.item_type)
    if isinstance(type_, inspect.UnionType):
        return set[str]().union(*map(keys, type_.types))
    return set()


def known_keys() -> set[str]:
    data = inspect.type_info(Scenario)
    assert isinstance(data, inspect.StructType)
    fields = [field for field in data.fields if field.encode_name != "turns"]
    found = {field.encode_name for field in fields}.union(*(keys(field.type) for field in fields))
    return found | {"turns"} | keys(inspect.type_info(load.Turn))


words = st.sampled_from(
    ["main", "auth", "for ever", "once", "tool", "kill", "drop", "stopped", "claude", "x", ""]
)
scalars = (
    words
    | st.booleans()
    | st.integers(-3, 12)
    | st.integers()
    | st.floats()
    | st.datetimes()
    | st.dates()
)
names = st.sampled_from(sorted(known_keys())) | st.text(max_size=4)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=6,
)


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int | float):
        return repr(value)
    return str(value.isoformat())


def quoted(text: str) -> str:
    """JSON's strings are TOML's, but for a few letters."""
    plain = "".join(c for c in text if c.isprintable())
    return json.dumps(plain, ensure_ascii=False)


tables = {
    "job": st.dictionaries(names, values, max_size=3),
    "context": st.dictionaries(names, values, max_size=2),
    "rules": st.lists(st.dictionaries(names, values, max_size=3), max_size=3),
    "turns": st.lists(st.dictionaries(names, values, max_size=3), max_size=2),
    "events": st.lists(st.dictionaries(names, values, max_size=2), max_size=2),
    "expects": st.dictionaries(names, values, max_size=2),
    "slow_for": st.lists(words, max_size=2),
}


@given(st.fixed_dictionaries({"about": st.just("x")}, optional=tables))
def test_any_toml_is_a_scenario_or_one_line(data: dict[str, Any]) -> None:
    attempt("\n".join(f"{key} = {toml(value)}" for key, value in data.items()))


@given(st.dictionaries(names, values, max_size=5))
def test_any_keys_and_values_are_a_scenario_or_one_line(data: dict[str, Any]) -> None:
    attempt("\n".join(f"{quoted(key)} = {toml(value)}" for key, value in data.items()))


# The document


def test_the_document_names_every_key_and_its_example_loads() -> None:
    text = DOCS.read_text(encoding="utf-8")
    missing = {key for key in known_keys() if not re.search(rf"[`\[{{ ]{key}\b", text)}
    assert not missing
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    found = load.parse(example, Path("night.toml"))
    assert found.summary == "forgets"
    for word in set(Kind) - {Kind.COUNT}:
        assert word.value in text
    with pytest.raises(InputError) as told:
        load.parse(example.replace("kind =", "befor_step =", 1), Path("night.toml"))
    assert str(told.value) in text


def test_the_example_goes_as_the_document_says() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    agent = Agent(load.parse(example, Path("night.toml")))
    faults = 0
    while (answer := agent.ask()).refusal is None or answer.refusal.fault == "overloaded":
        faults += answer.refusal is not None
        if answer.reply:
            agent.take(answer.reply)
    assert faults == 3
    assert agent.world.done == [1, 2, 3, 4, 5, 6, 7, 8]
    agent.parts = agent.parts[:4]  # a part of it, that fits
    summary = agent.ask(Kind.COMPACTION)
    assert (summary.delivery, summary.chunk_s) == ("trickle", 0.2)
    assert summary.reply is not None
    agent.start_again(summary.reply.text)
    again = agent.ask().reply
    assert again is not None
    assert again.calls[0].command == "sh job/step 1"
