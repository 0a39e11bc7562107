"""Did the handoff work? What a session that took over does again."""

import json
from pathlib import Path
from typing import Any

from support.running import QUICK, stage

from segue.core.handoffs.digest import Arrival, Builder, Compactions, Repeats
from segue.core.stops.events import Compaction, Event, Prompt, Reply, Summary, ToolCall, ToolResult

_FULL = "[[rules]]\nafter_requests = 3\nusage = {input_tokens = 195000, output_tokens = 9}\n"


def shell(command: str, number: int, *, code: int = 0, printed: str = "some words") -> list[Event]:
    name = f"c{number}"
    return [
        ToolCall(name="Bash", call_id=name, command=command),
        ToolResult(call_id=name, exit_code=code, failed=code != 0, printed=printed),
    ]


def tool(name: str, **given: Any) -> ToolCall:
    return ToolCall(name=name, call_id=name, given=given)


def before() -> Builder:
    builder = Builder()
    events = [
        *shell("make fixtures", 1),
        *shell("make test", 2, code=2),
        *shell("git status", 3),
        tool("Read", file_path="/p/src/parser.py"),
        tool("AskUserQuestion", questions=[{"question": "Which database shall I use for it?"}]),
    ]
    for event in events:
        builder.feed(event)
    return builder


def seen(*events: Event) -> Repeats:
    arrival = Arrival(before().digest())
    for event in events:
        arrival.feed(event)
    return arrival.repeats


def test_what_was_done_and_is_done_again_is_counted_once_each() -> None:
    found = seen(*shell("make  fixtures", 1), *shell("make fixtures", 2))
    assert (found.commands, found.files, found.questions) == (1, 0, 0)
    assert found.actions == 2


def test_looking_around_and_trying_what_failed_are_not_repeats() -> None:
    assert seen(*shell("git status", 1), *shell("ls -la", 2), *shell("make test", 3)).commands == 0


def test_a_file_that_a_command_printed_is_read_again_by_any_tool_or_command() -> None:
    builder = Builder()
    for event in (*shell("sed -n '1,80p' src/parser.py", 1), *shell("ls docs/run.md", 2)):
        builder.feed(event)
    for again in (*shell("cat ./src/parser.py", 1), tool("Read", file_path="/p/src/parser.py")):
        arrival = Arrival(builder.digest())
        arrival.feed(again)
        assert arrival.repeats.files == (1 if isinstance(again, ToolCall) else 0)
    arrival = Arrival(builder.digest())
    for event in (*shell("sed -n '1,80p' src/other.py", 1), *shell("cat docs/run.md", 2)):
        arrival.feed(event)
    assert arrival.repeats.files == 0


def test_a_long_file_that_a_command_printed_is_known_although_its_text_is_not_kept() -> None:
    builder = Builder()
    for event in shell("cat docs/run.md | head -n 900", 1, printed="some words\n" * 900):
        builder.feed(event)
    assert [(file.path, file.reads) for file in builder.digest().files] == [("docs/run.md", 1)]
    arrival = Arrival(builder.digest())
    for event in shell("sed -n 1,900p ./docs/run.md", 2):
        arrival.feed(event)
    assert arrival.repeats.files == 1


def test_a_question_counts_if_it_is_left_to_the_user() -> None:
    asks = Reply(text="Which database shall I use for it?")
    assert seen(asks).questions == 1
    assert seen(asks, Prompt(text="The old one."), *shell("make", 1)).questions == 1
    assert seen(asks, *shell("grep -r database .", 1)).questions == 0


def test_a_file_that_was_read_is_known_by_whatever_way_it_is_read_again() -> None:
    assert seen(tool("Read", file_path="/p/src/parser.py")).files == 1
    assert seen(*shell("sed -n 1,200p src/parser.py", 1)).files == 1
    assert seen(*shell("cat ./src/parser.py | head -50", 1)).files == 1
    assert seen(tool("Read", file_path="/p/src/lexer.py")).files == 0
    assert seen(*shell("cat tests/other_parser.py", 1)).files == 0


def test_a_question_that_was_asked_is_known_again() -> None:
    asked = tool("AskUserQuestion", questions=[{"question": "Which database shall I use for it"}])
    assert seen(asked).questions == 1
    other = tool("AskUserQuestion", questions=[{"question": "Shall the old files be deleted?"}])
    assert seen(other).questions == 0


def test_only_the_first_actions_count() -> None:
    replies = [Reply(text=f"Step {number}.") for number in range(20)]
    assert seen(*replies, *shell("make fixtures", 1)) == Repeats(actions=20)


def test_show_says_what_a_session_did_again_after_a_handoff(tmp_path: Path) -> None:
    commands = ["echo one > a", "echo two > b", "echo three > c", "echo four > d; sleep 5"]
    again = ["git status", "echo two > b", "echo five > e"]
    turns = "".join(f"[[turns]]\ncommand = {json.dumps(each)}\n" for each in [*commands, *again])
    file = tmp_path / "again.toml"
    file.write_text(f'about = "A session repeats a command."\n[job]\nsteps = 3\n{_FULL}{turns}')
    with stage(file, within=tmp_path, policy=QUICK) as s:
        ended = s.run()
        assert ended.code == 0, ended.stderr
        (run,) = s.run_ids()
        found = json.loads(s.segue("show", "--json", run).stdout)
        (arrival,) = found["arrivals"]
        assert (arrival["leg"], arrival["handoff"]) == (2, 1)
        assert (arrival["commands"], arrival["files"], arrival["questions"]) == (1, 0, 0)
        assert "repeated 1 command, re-read 0 files, asked again 0 questions" in ended.stderr
        shown = " ".join(s.segue("show", run).stdout.split())
        assert "repeated 1 command, re-read 0 files, asked again 0 questions" in shown


def test_a_compaction_that_is_reported_twice_is_one_and_has_its_own_summary() -> None:
    seen = Compactions()
    works = ToolCall(name="Bash", call_id="c", command="make")
    for event in (Summary(text="first"), Compaction(phase="done"), Compaction(phase="done")):
        seen.feed(event)
    assert (seen.count, seen.summary, seen.works_after) == (1, "first", 0)
    seen.feed(works)
    assert seen.works_after == 1
    seen.feed(Compaction(phase="done"))
    assert (seen.count, seen.summary) == (2, "")
    seen.feed(Summary(text="second"))
    assert (seen.summary, seen.works_after) == ("second", 1)


def test_a_compaction_that_is_reported_late_came_before_the_work_that_followed_it() -> None:
    """Some agents show their compaction in another file than their work: the times decide."""
    seen = Compactions(has_worked=True)
    seen.feed(ToolCall(name="Bash", call_id="c", command="make", at=20.0))
    seen.feed(ToolResult(call_id="c", at=21.0))
    seen.feed(Compaction(phase="done", at=10.0))
    assert (seen.count, seen.works_after, seen.results_after, seen.replies_after) == (1, 1, 1, 1)
    seen.feed(Reply(text="That is it.", at=22.0))
    seen.feed(Compaction(phase="done", at=30.0))
    assert (seen.count, seen.works_after, seen.results_after, seen.replies_after) == (2, 1, 1, 1)
    assert seen.is_after_work
