"""What a digest keeps of a conversation, and that nothing displaces it."""

import json
import sqlite3
import subprocess
import sys
import tracemalloc
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.files.scan import load

from segue.core.handoffs.digest import Builder, Digest, budget_chars, left_out, sections
from segue.core.sessions.remarks import Todo
from segue.core.stops.events import Event, Prompt, Reply, TodoList, ToolCall, ToolResult
from segue.sessions.digest import read_session

conversations: ModuleType = load(Path(__file__).parents[3] / "bench/support/conversations.py")
AGENTS = ("claude", "codex", "gemini", "pi", "qwen", "opencode")
BUDGET = budget_chars(200_000)


def run(command: str, printed: str, *, code: int = 0, call: str = "c") -> list[Event]:
    return [
        ToolCall(name="Bash", call_id=call, command=command, argument=command),
        ToolResult(call_id=call, printed=printed, exit_code=code, failed=code != 0),
    ]


def digest_of(*events: Event, told: tuple[str, ...] = ("the task",)) -> Digest:
    builder = Builder(told)
    for event in events:
        builder.feed(event)
    return builder.digest()


def text_of(digest: Digest, chars: int = BUDGET, told: str = "") -> str:
    return "\n\n".join(
        f"## {title}\n{text}" for title, text in sections(digest, chars, summary=told)
    )


@pytest.mark.parametrize("agent", AGENTS)
def test_facts_of_every_kind_and_depth_survive_in_every_agents_form(
    agent: str, tmp_path: Path
) -> None:
    turns, planted = conversations.conversation(3, 0.4)
    path = conversations.write(tmp_path, agent, turns)
    builder = Builder([turns[0].text])
    read_session(builder, agent, str(path), conversations.SESSION)
    text = text_of(builder.digest())
    missed = [(fact.kind, fact.depth) for fact in planted if fact.needle not in text]
    assert len(missed) <= len(planted) // 20, missed


@pytest.mark.parametrize("agent", [agent for agent in AGENTS if agent != "opencode"])
def test_a_file_cut_in_mid_line_or_damaged_tells_what_is_left(agent: str, tmp_path: Path) -> None:
    turns, planted = conversations.conversation(4, 0.2)
    path = conversations.write(tmp_path, agent, turns)
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(data[:middle] + b"\0\xff{]" + data[middle + 200 : -137])
    builder = Builder([turns[0].text])
    read_session(builder, agent, str(path), conversations.SESSION)
    text = text_of(builder.digest())
    missed = [(fact.kind, fact.depth) for fact in planted if fact.needle not in text]
    assert len(missed) <= 6, missed


@pytest.mark.parametrize("name", ["none.jsonl", "folder", "empty.jsonl", "words.db", "notes.md"])
def test_what_is_not_a_session_feeds_nothing_and_raises_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "words.db").write_text("no database")
    for agent in (*AGENTS, "nobody"):
        builder = Builder()
        read_session(builder, agent, str(tmp_path / name), "x")
        assert builder.digest().is_empty


def test_a_markdown_session_is_the_agents_own_words(tmp_path: Path) -> None:
    path = tmp_path / "session.md"
    path.write_text("---\nlastStep: 3\n---\nI decided to use sqlite, because it needs no server.\n")
    builder = Builder()
    read_session(builder, "markdown", str(path))
    assert "I decided to use sqlite" in text_of(builder.digest())


_PICTURES: dict[str, Any] = {
    "claude": {"type": "image", "source": {"type": "file", "path": "shots/heron.png"}},
    "pi": {"type": "image", "path": "shots/heron.png", "mimeType": "image/png"},
    "gemini": {"inlineData": {"mimeType": "image/png", "displayName": "heron.png", "data": "A"}},
    "qwen": {"inlineData": {"mimeType": "image/png", "displayName": "heron.png", "data": "A"}},
}


@pytest.mark.parametrize("agent", AGENTS)
def test_an_image_that_the_user_gave_is_reported_by_name(agent: str, tmp_path: Path) -> None:
    turns = [conversations.Turn("user", "As in the picture."), conversations.Turn("agent", "Yes.")]
    path = conversations.write(tmp_path, agent, turns)
    if agent == "opencode":
        part = {"type": "file", "mime": "image/png", "filename": "heron.png", "url": "data:"}
        with closing(sqlite3.connect(path)) as db:
            row = ("prt_1", "msg_00000000", conversations.SESSION, 1, 1, json.dumps(part))
            db.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", row)
            db.commit()
    else:
        records = [json.loads(line) for line in path.read_text().splitlines()]
        words = next(n for n, record in enumerate(records) if "picture" in json.dumps(record))
        record = records[words]
        if agent == "codex":
            record["payload"]["local_images"] = ["shots/heron.png"]
        elif agent == "gemini":
            record["content"].append(_PICTURES[agent])
        elif agent == "qwen":
            record["message"]["parts"].append(_PICTURES[agent])
        else:
            said = [{"type": "text", "text": "As in the picture."}]
            record["message"]["content"] = [*said, _PICTURES[agent]]
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    builder = Builder()
    read_session(builder, agent, str(path), conversations.SESSION)
    text = text_of(builder.digest())
    assert "As in the picture." in text
    assert "heron.png" in text[text.index("## Images") :]


def test_the_users_words_are_kept_in_order_and_corrections_are_marked() -> None:
    digest = digest_of(
        Prompt(text="the task"),
        Prompt(text="Use tabs."),
        Prompt(text="This message is automatic: nobody typed it. Go on."),
        Prompt(text="No, use spaces instead."),
    )
    assert [(p.text, p.is_correction) for p in digest.prompts] == [
        ("Use tabs.", False),
        ("No, use spaces instead.", True),
    ]


def test_words_said_twice_count_where_they_were_said_last() -> None:
    digest = digest_of(Prompt(text="A rule."), Prompt(text="Another."), Prompt(text="A  rule."))
    assert [prompt.text for prompt in digest.prompts] == ["Another.", "A  rule."]


def test_the_users_words_are_cut_last() -> None:
    noise = [e for n in range(300) for e in run(f"./do {n}", f"thing {n} is {n * 7}", call=str(n))]
    digest = digest_of(*noise, Prompt(text="Never touch the vault module."))
    assert "Never touch the vault module." in text_of(digest, 600)


def test_what_a_tool_printed_once_is_there_at_the_end() -> None:
    noise = [e for n in range(400) for e in run(f"./check {n}", f"ok {n}", call=f"n{n}")]
    digest = digest_of(*run("sh job/step 3", "the word is heron"), *noise)
    assert "the word is heron" in text_of(digest)


def test_a_value_in_the_midst_of_a_long_log_is_kept_and_a_key_in_it_is_not() -> None:
    log = [f"INFO handled request {n} of the morning" for n in range(300)]
    key = ["-----BEGIN RSA PRIVATE KEY-----", *["Proc7Token9Is0" * 4] * 12]  # without its end
    digest = digest_of(*run("make serve", "\n".join([*log, "PORT=8123", *log])))
    assert "PORT=8123" in text_of(digest)
    for printed in ([*log, *key], [*log, *key, "port: 8123", *log[:4]], [*key, *log], [*key]):
        text = text_of(digest_of(*run("make serve", "\n".join(printed))))
        assert "Proc7Token9Is0" not in text
    looked = digest_of(*run("cat log", "\n".join([*log, *key])), Reply(text="`Proc7Token9Is0`?"))
    assert "Proc7Token9Is0" not in "".join(r for o in looked.results for r in o.lines)


_FORMS = {
    "a word alone": "{}",
    "a sentence": "Please write down {}: you will be asked for it later.",
    "a setting": "BUILD_LABEL={}",
    "JSON": '{{"status": "ok", "ticket": "{}", "n": 4}}',
    "JSON over lines": '{{\n  "status": "ok",\n  "result": {{\n    "shard": "{}"\n  }}\n}}',
    "YAML": "deployment:\n  name: web\n  slot: {}\n  size: 3",
    "a table": "NAME    STATE   OWNER\nalpha   up      {}\nbeta    down    nobody",
    "Markdown": "| key | value |\n|---|---|\n| region | {} |",
    "German": "Das Losungswort lautet {}, bitte merken.",
    "Japanese": "合言葉は{}です。",
    "Russian": "Кодовое слово: {}",
    "an address": "Preview ready at http://127.0.0.1:8123/{}/index.html",
    "a line as the others": "2026-11-03T10:11:12Z INFO assigned worker name {}",
}
_AROUND = {
    "a log": "2026-11-0{0}T10:11:{0}Z INFO handled request {0}",
    "a build": "[{0}/900] Compiling module_{0} v1.{0}.0",
    "tests": "tests/test_{1}.py::test_{1}_{0} PASSED [{0}%]",
    "warnings": "npm WARN deprecated {1}@{0}.0.1: {1} is no longer maintained, use {1}-next",
    "code": "    {1} = {1}_of({1}, {0})",
}


@pytest.mark.parametrize("around", _AROUND)
@pytest.mark.parametrize("form", _FORMS)
def test_what_is_unlike_the_rest_of_a_long_output_is_kept_whatever_its_form(
    form: str, around: str
) -> None:
    lines = [_AROUND[around].format(n, "".join(chr(97 + n * k % 26) for k in (1, 3, 5, 7)))
             for n in range(100, 400)]  # fmt: skip
    lines.insert(140, _FORMS[form].format("heronwing"))
    noise = [e for n in range(60) for e in run(f"make {n}", "\n".join(lines[141:]), call=f"n{n}")]
    assert "heronwing" in text_of(digest_of(*run("make all", "\n".join(lines)), *noise))


def _some_word(number: int) -> str:
    """One of some hundred, as if by chance."""
    kind = number * number * 31 % 199
    return "".join(chr(97 + kind * step % 26) for step in (1, 3, 5, 7))


_MANY = {
    "rows of many words": lambda n: f"| {n:4} | {_some_word(n)} | {'up' if n % 3 else 'down'} |",
    "a build": lambda n: (
        f"[{n}/900] Compiling {_some_word(n)} v1.{n}.0",
        f"  CC    src/{_some_word(n)}_{n}.o",
        f"warning: unused variable `{_some_word(n)}{n}`",
    )[n % 3],
    "encoded lines": lambda n: "".join(f"{n * n * 7919 + k * k:016x}" for k in range(4)),
}


@pytest.mark.parametrize("form", ["a word alone", "a setting", "Japanese", "Russian", "a sentence"])
@pytest.mark.parametrize("around", _MANY)
def test_among_very_many_lines_of_as_many_kinds_the_one_unlike_them_all_is_kept(
    around: str, form: str
) -> None:
    lines = [_MANY[around](n) for n in range(2_000)]
    lines.insert(1_001, _FORMS[form].format("heronwing"))
    assert "heronwing" in text_of(digest_of(*run("make all", "\n".join(lines))))


@pytest.mark.parametrize(
    "said",
    [
        "Running the next one with heronwing at hand",
        "OK, heronwing.",
        "I will call it heronwing.",
        "Das Wort ist heronwing.",
        "| key | value |\n|---|---|\n| codename | heronwing |",
    ],
)
def test_what_the_agent_says_in_passing_is_kept_if_it_says_nothing_like_it_again(said: str) -> None:
    habits = ("Let me look at part {}.", "Step {0} is done. Now step {0}1.", "Running test {}.")
    later = [Reply(text=habits[n % 3].format(n)) for n in range(900)]
    digest = digest_of(Reply(text=said), *later)
    assert "heronwing" not in digest.last_words
    assert "heronwing" in text_of(digest)
    assert len(digest.remarks) < 5


def test_what_stands_in_the_midst_of_a_long_prompt_is_kept() -> None:
    log = "\n".join(f"10:{n % 60:02} INFO handled {n}" for n in range(2_000))
    text = f"Look at this:\n{log[:20_000]}\nthe queue is heronwing\n{log[20_000:]}"
    assert "heronwing" in text_of(digest_of(Prompt(text=text)))


def test_a_line_of_data_is_kept_whole_if_it_is_short_and_what_is_odd_in_it_if_not() -> None:
    short = json.dumps({f"field_{n}": f"value {n}" for n in range(30)} | {"lease": "heronwing"})
    assert 600 < len(short) < 1_000
    assert "heronwing" in text_of(digest_of(*run("curl a", short)))
    rows = [{"id": n, "name": f"host{n}"} for n in range(300)]
    rows[140]["held by"] = "heronwing"
    for printed in (json.dumps(rows), json.dumps(rows, separators=(",", ":"))):
        assert "heronwing" in text_of(digest_of(*run("curl b", f"HTTP/1.1 200 OK\n\n{printed}")))


def test_what_one_long_line_of_words_says_in_its_midst_is_kept() -> None:
    words = ["amber", "basin", "cedar", "delta", "ember", "fjord", "grove"]
    noise = [f"{words[n % 7]} {n * 7919 % 997}" for n in range(1_500)]
    noise.insert(700, "the shared folder is osprey-lumen")
    assert "osprey-lumen" in text_of(digest_of(*run("sh step 3", " ".join(noise))))


def test_a_name_in_a_list_of_figures_is_kept_although_each_figure_has_a_name() -> None:
    kinds = [
        f"{how}_{of}"
        for how in ("max", "min", "avg", "sum")
        for of in ("load", "size", "age", "lag")
    ]
    rows = [f"{kinds[n % 16]}_{n * 37 % 90:02d}    {n * 7919 % 99_991}" for n in range(70)]
    rows.insert(33, "leader               osprey-lumen")
    assert "osprey-lumen" in text_of(digest_of(*run("sh step 3", "\n".join(rows))))


def test_a_long_report_of_a_sub_agent_is_kept() -> None:
    said = "The queue is read by one worker at a time, and each of them writes to a table. " * 12
    report = f"{said}\n\n{said}The entry point is src/heronwing.py. {said}"
    digest = digest_of(
        ToolCall(name="Task", call_id="t", argument="find it", given={"prompt": "find it"}),
        ToolResult(call_id="t", printed=report),
    )
    assert "src/heronwing.py" in text_of(digest)


def test_how_a_long_output_begins_and_ends_is_kept_although_all_begin_so() -> None:
    rows = [
        f"{'abcdefgh'[k % 8] * 5} {k * 37} knoll {k} kelp {k * 9} ivory {k * 3}" for k in range(27)
    ]
    events = [
        event
        for n in range(1, 30)
        for event in run(
            f"sh job/step {n}",
            "\n".join([f"step {n} of 30 done", *rows, f"wrote part {n} of the report"]),
            call=str(n),
        )
    ]
    text = text_of(digest_of(*events))
    assert [n for n in range(1, 30) if f"step {n} of 30 done" not in text] == []
    assert [n for n in range(1, 30) if f"wrote part {n} of" not in text] == []


def test_of_logs_full_of_the_same_lines_only_the_last_line_and_what_is_new_are_kept() -> None:
    def log(number: int, *more: str) -> str:
        lines = [f"2026-11-03T10:{n % 60:02}:12Z INFO wrote batch {number}{n}" for n in range(200)]
        return "\n".join([*lines[:90], *more, *lines[90:]])

    events = [e for n in range(10) for e in run(f"make it-{n}", log(n), call=f"c{n}")]
    events += run("make last", log(99, "listening on port 40123"), call="last")
    digest = digest_of(*events)
    assert [len(result.lines) for result in digest.results][1:-1] == [1] * 9
    assert "listening on port 40123" in digest.results[-1].lines


def test_a_long_result_does_not_push_out_the_others() -> None:
    rows = [f"{'xyz'[k % 3] * k} is there, and number" for k in range(1, 40)]
    long = [
        event
        for n in range(40)
        for event in run(f"./list {n}", "\n".join(f"{row} {n}" for row in rows), call=str(n))
    ]
    digest = digest_of(*run("sh job/step 3", "the word is heronwing"), *long)
    assert "heronwing" in text_of(digest, 6_000)


def test_whatever_is_printed_a_builder_stays_small() -> None:
    builder = Builder()
    tracemalloc.start()
    for n in range(4_000):
        printed = "\n".join(
            f"{'abcdefg'[n % 7] * (k % 9)} {n}-{k} of {'z' * 240}" for k in range(40)
        )
        for event in run(f"./do {n}", printed, call=str(n)):
            builder.feed(event)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 5_000_000


def test_a_call_made_again_replaces_the_earlier_one_and_is_counted() -> None:
    digest = digest_of(*run("make", "built 1"), *run("make", "built 2"))
    (result,) = digest.results
    assert (result.lines, result.times) == (("built 2",), 2)


def test_a_failure_that_was_fixed_no_longer_counts() -> None:
    broken = digest_of(*run("pytest", "FAILED tests/test_a.py::test_b - assert 1 == 2", code=1))
    assert "assert 1 == 2" in text_of(broken)
    repaired = digest_of(*run("pytest", "FAILED x", code=1), *run("pytest", "12 passed"))
    assert not repaired.failures


def test_a_value_that_changed_is_reported_with_the_new_one() -> None:
    digest = digest_of(
        *run("./ports a", "staging port is 4001"), *run("./ports b", "the staging port is now 5002")
    )
    text = text_of(digest)
    assert "staging port is 4001 (later: 5002)" in text
    assert "the staging port is now 5002" in text


def test_an_old_value_does_not_follow_a_summary_that_has_the_current_one() -> None:
    digest = digest_of(
        *run("./ports a", "staging port is 4001"), *run("./ports b", "staging port is 5002")
    )
    assert "4001" not in text_of(digest, told="The staging port is 5002.")
    assert "4001 (later: 5002)" in text_of(digest, told="The staging port is open.")


def test_a_call_that_prints_an_old_value_again_does_not_bring_it_back() -> None:
    """As an agent that forgot what it did does a step once more."""
    digest = digest_of(
        *run("./step 1", "staging port is 4001"),
        *run("./step 2", "staging port is now 5002"),
        *run("./step 1", "staging port is 4001"),
    )
    text = text_of(digest)
    assert "staging port is 4001 (later: 5002)" in text
    assert "now 5002 (later" not in text
    assert text.index("is 4001") < text.index("is now 5002"), "the last word comes last"
    assert [(each.call, each.times) for each in digest.results] == [
        ("./step 1", 2),
        ("./step 2", 1),
    ]


def test_a_call_that_shows_how_things_are_now_is_believed_each_time() -> None:
    digest = digest_of(
        *run("./status", "staging port is 4001"),
        *run("./change", "staging port is now 5002"),
        *run("./status", "staging port is 5002"),
        *run("./back", "done"),
        *run("./status", "staging port is 4001"),
    )
    text = text_of(digest)
    assert "staging port is now 5002 (later: 4001)" in text
    assert "is 4001 (later" not in text


def test_what_was_said_after_a_value_was_printed_counts() -> None:
    digest = digest_of(
        *run("./port", "staging port is 4001"), Reply(text="The staging port is now 5002.")
    )
    assert "staging port is 4001 (later: 5002)" in text_of(digest)


def test_a_statement_that_was_taken_back_is_reported_with_what_replaced_it() -> None:
    digest = digest_of(
        Reply(text="The cache backend is redis."), Reply(text="The cache backend is now sqlite.")
    )
    (statement,) = [s for s in digest.statements if "sqlite" in s.text]
    assert statement.earlier == "The cache backend is redis."


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("I decided to use sqlite, because it needs no server.", "decision"),
        ("Found the root cause: the lock is taken twice.", "finding"),
        ("The websocket approach does not work behind the proxy, so I reverted it.", "dropped"),
        ("Should the report be sent weekly or monthly?", "question"),
    ],
)
def test_sentences_that_matter_are_kept_by_what_they_do(said: str, kind: str) -> None:
    digest = digest_of(Reply(text=f"Let me look.\n\n{said}\n\n```\ncode decided nothing\n```"))
    assert [(s.text, s.kind) for s in digest.statements] == [(said, kind)]


def test_what_can_be_read_again_is_named_and_not_kept() -> None:
    read = [
        ToolCall(name="Read", call_id="r", argument="a.py", given={"file_path": "a.py"}),
        ToolResult(call_id="r", printed="secret_of_the_file = 1\n" * 200),
    ]
    digest = digest_of(*read, *read, *run("cat b.py", "value = 2\n" * 400))
    text = text_of(digest)
    assert "a.py (read 2 times)" in text
    assert "secret_of_the_file" not in text
    assert "value = 2" not in text


def test_a_line_of_a_long_output_that_a_reply_names_is_kept() -> None:
    log = [f"line {n} of the build" for n in range(900)]
    log[400] = "artifact build-7f3a9 stored"
    digest = digest_of(*run("make all", "\n".join(log)), Reply(text="I will deploy `build-7f3a9`."))
    assert "artifact build-7f3a9 stored" in text_of(digest)


def test_encoded_data_and_rules_tell_nothing() -> None:
    digest = digest_of(*run("./x", "A" * 5000 + "\n" + "=" * 40 + "\nmade it\n"))
    assert digest.results[0].lines == ("made it",)


def test_edits_are_reported_by_file_with_the_last_change() -> None:
    given = {"file_path": "src/a.py", "old_string": "x = 1", "new_string": "x = 2\ny = 3"}
    digest = digest_of(
        ToolCall(name="Edit", call_id="e", argument="", files=("src/a.py",), given=given)
    )
    assert "src/a.py (written; last +2 −1: x = 2)" in text_of(digest)


def test_the_newest_todo_list_counts_and_single_items_change_it() -> None:
    first = TodoList(todos=(Todo("a", "pending"), Todo("b", "pending")))
    digest = digest_of(first, TodoList(todos=(Todo("a", "completed"),)))
    assert digest.todos == (Todo("a", "completed"), Todo("b", "pending"))


def test_a_sub_agents_report_is_kept() -> None:
    digest = digest_of(
        ToolCall(name="Task", call_id="t", argument="find it", given={"prompt": "find it"}),
        ToolResult(call_id="t", printed="The retry logic lives in src/net/backoff.py."),
    )
    assert "sub-agent: `Task find it`" in text_of(digest)
    assert "src/net/backoff.py" in text_of(digest)


def test_after_a_compaction_the_task_is_told_again_if_the_summary_lost_what_it_forbids() -> None:
    task = "Fix the failing tests in tests/api. Do not touch legacy/old.py."
    found = left_out(Digest(), "I fix tests/api.", window_tokens=0, task=task)
    assert found == f"## The task, word for word\n> {task}"
    whole = "I fix tests/api and leave legacy/old.py alone."
    assert left_out(Digest(), whole, window_tokens=0, task=task) == ""
    assert left_out(Digest(), "The rest.", window_tokens=0, task="Fix the failing tests.") == ""
    long = "\n".join(f"Rule {n}: keep file-{n}.py as it is." for n in range(9_000))
    assert len(left_out(Digest(), whole, window_tokens=0, task=long)) <= budget_chars(0)


def test_what_the_agent_told_itself_is_not_told_again() -> None:
    digest = digest_of(
        Reply(text="I decided to use sqlite3 in src/store.py, because it needs no server."),
        Reply(text="I decided to keep the port at 8123, because the proxy expects it."),
    )
    text = text_of(digest, told="## Key Decisions\n- sqlite3 in src/store.py")
    assert "src/store.py" not in text
    assert "8123" in text


@given(st.integers(200, 60_000))
def test_a_budget_is_never_passed(chars: int) -> None:
    turns, _ = conversations.conversation(5, 0.05)
    builder = Builder()
    for event in _events(turns):
        builder.feed(event)
    found = sections(builder.digest(), chars)
    assert sum(len(title) + len(text) + 6 for title, text in found) <= max(chars, 400)


_TEXT = st.text(max_size=300)
_EVENTS: Any = st.one_of(
    st.builds(Prompt, text=_TEXT, images=st.tuples(_TEXT)),
    st.builds(Reply, text=_TEXT),
    st.builds(
        ToolCall,
        name=_TEXT,
        call_id=st.sampled_from("abc"),
        command=_TEXT,
        argument=_TEXT,
        files=st.tuples(_TEXT),
        given=st.recursive(_TEXT | st.none() | st.integers(), lambda s: st.dictionaries(_TEXT, s)),
    ),
    st.builds(ToolResult, call_id=st.sampled_from("abc"), printed=_TEXT, failed=st.booleans()),
)


@given(st.lists(_EVENTS, max_size=30))
def test_no_events_raise_and_the_same_events_give_the_same_digest(events: list[Event]) -> None:
    one, other = digest_of(*events), digest_of(*events)
    assert one == other
    text_of(one, 2_000)


def test_another_process_makes_the_same_digest(tmp_path: Path) -> None:
    """Python's own hashes differ from process to process."""
    turns, _ = conversations.conversation(6, 0.1)
    path = conversations.write(tmp_path, "claude", turns)
    code = (
        "import sys; from segue.core.handoffs.digest import *\n"
        "from segue.sessions.digest import *\n"
        "b = Builder(); read_session(b, 'claude', sys.argv[1])\n"
        "import json; print(json.dumps(sections(b.digest(), 20_000)))"
    )
    told = {
        json.dumps(
            json.loads(
                subprocess.run(
                    [sys.executable, "-c", code, str(path)],
                    env={"PYTHONHASHSEED": seed},
                    capture_output=True,
                    check=True,
                ).stdout
            )
        )
        for seed in ("1", "2")
    }
    assert len(told) == 1


def _events(turns: list[Any]) -> list[Event]:
    found: list[Event] = []
    for number, turn in enumerate(turns):
        match turn.kind:
            case "user":
                found.append(Prompt(text=turn.text))
            case "agent":
                found.append(Reply(text=turn.text))
            case _:
                found += run(turn.call, turn.text, code=turn.code, call=str(number))
    return found
