"""pi as segue drives it: the real one, isolated."""

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.agents.driven import ODD, Stage, act, enclosed

from segue.agents import drives
from segue.agents.contracts.drive import Drive, LegOrder
from segue.agents.contracts.profile import Record
from segue.agents.pi.profile import parse
from segue.agents.shared import halts
from segue.core.stops.events import Event, Failure, Prompt, Started, ToolCall, ToolResult
from segue.core.stops.reasons import StopReason

NEW = "11111111-2222-4333-8444-555555555555"
FLAGS = ("--model", "drill/drill-model")


def drive() -> Drive:
    found = drives.find("pi")
    assert found is not None
    return found


# Plays


def talk(stage: Stage) -> None:
    """More words while a tool runs; a stop and new words; its end; and another process."""
    model = stage.model
    model.commands = ["touch one; sleep 1; echo said; exit 3"]
    leg = stage.leg("Do it.", new_id=NEW, flags=FLAGS)
    leg.until(stage.made("one"))
    leg.say("And this.", "k1")
    leg.until_over()
    assert [p.text for p in model.asked[-1].parts if p.role == "user"] == ["Do it.", "And this."]
    assert leg.live.session_id == NEW
    assert leg.heard == ["first", "k1"]
    assert leg.size() == (model.counted, 200_000)
    (call,) = [e for e in leg.events if isinstance(e, ToolCall)]
    (result,) = [e for e in leg.events if isinstance(e, ToolResult)]
    assert call.command == "touch one; sleep 1; echo said; exit 3"
    assert call.argument == f'{{"command":"{call.command}"}}'
    assert (result.exit_code, result.failed) == (3, True)

    model.commands = ["touch two; sleep 300"]
    leg.say("A long one.", "k2")
    leg.until(stage.made("two"))
    leg.give(drive().interrupt + drive().say("Now this.", "k3"))  # type: ignore[misc]
    leg.until(lambda: "k3" in leg.heard)
    leg.until_over(3)
    assert model.asked[-1].last_text == "Now this."
    assert leg.close() == 0
    assert leg.stop(0).reason is StopReason.COMPLETED
    file = drive().session_file(NEW, stage.env, str(stage.project))  # type: ignore[misc]
    assert Path(file).name.endswith(f"_{NEW}.jsonl")

    again = stage.leg(ODD, session_id=NEW, flags=FLAGS)
    again.until_over()
    whole = ODD.encode("utf-16", "surrogatepass").decode("utf-16")
    assert model.asked[-1].last_text == whole
    assert model.asked[-1].parts[1].text == "Do it.", "it began anew"
    assert [e.text for e in again.events if isinstance(e, Prompt)] == [whole]
    assert again.live.session_id == NEW
    assert again.size() == (model.counted, 200_000)
    assert again.close() == 0


def signals(stage: Stage) -> None:
    """What is meant for it reaches it, and a dead one is seen."""
    stage.model.commands = ["touch one; sleep 300"]
    leg = stage.leg("Do it.", new_id=NEW, flags=FLAGS)
    leg.until(stage.made("one"))
    leg.process.send_signal(signal.SIGTERM)
    assert leg.ended() == 143

    stage.model.commands = ["touch two; sleep 0.5"]
    killed = stage.leg("Go on.", session_id=NEW, flags=FLAGS)
    killed.until(stage.made("two"))
    (child,) = psutil.Process(killed.process.pid).children()
    os.kill(child.pid, signal.SIGKILL)
    code = killed.ended()
    assert code == 137
    assert killed.stop(code).reason is StopReason.CRASH
    psutil.wait_procs(psutil.Process().children(True), 10)  # the tool's last moments

    missing = stage.leg("Go on.", session_id="no-such-session", flags=FLAGS)
    code = missing.ended()
    assert code == 1
    assert missing.stop(code).reason is StopReason.ERROR


PLAYS = {"talk": talk, "signals": signals}


@pytest.mark.real_agent
@pytest.mark.parametrize("play", PLAYS)
def test_the_real_pi_is_driven(play: str, tmp_path: Path) -> None:
    enclosed(__file__, play, tmp_path, "pi")


# Without an agent


def events(*records: dict[str, Any]) -> list[Event]:
    return list(parse(Record(record) for record in records))


def order(*command: str, **more: Any) -> LegOrder:
    known: dict[str, Any] = {"prompt": "x", "cwd": "/p", "folder": "/l", "env": {}}
    return LegOrder(command=command, **{**known, **more})


def test_the_new_pi_is_given_its_id_and_the_old_one_tells_its_own() -> None:
    new = drive().launch(order("node", "/m/@earendil-works/x/cli.js", new_id=NEW))
    assert new.session_id == NEW
    assert new.argv[-2:] == ("--session-id", NEW)
    old = drive().launch(order("node", "/m/@mariozechner/x/cli.js", new_id=NEW))
    assert old.session_id == ""
    assert "--session-id" not in old.argv
    state = {"sessionId": "s1", "model": {"id": "m", "contextWindow": 5}}
    answer = {"type": "response", "command": "get_state", "success": True, "data": state}
    assert events(answer) == [Started(session_id="s1", model="m")]


def test_pi_waits_after_its_compaction_by_an_extension_of_the_leg() -> None:
    launch = drive().launch(order("node", "cli.js", halts=True, folder="/the/leg"))
    extension = launch.argv[launch.argv.index("--extension") + 1]
    assert launch.env == {halts.FOLDER: "/the/leg"}
    assert f"process.env.{halts.FOLDER};" in Path(extension).read_text()
    assert "--extension" not in drive().launch(order("node", "cli.js")).argv


@pytest.mark.parametrize(
    "flags", [("--mode", "json"), ("-p",), ("--session=x",), ("--no-session",), ("@notes.md",)]
)
def test_flags_that_are_segues_own_are_refused_by_name(flags: tuple[str, ...]) -> None:
    assert flags[0].partition("=")[0] in drive().refuses(flags)
    assert drive().refuses(("--model", "a/b", "--thinking", "high")) == ""


def test_a_run_of_the_old_pi_is_over_if_nothing_follows() -> None:
    watch = drive().watch()
    assert watch.over({"type": "agent_end", "messages": []}) == "maybe"
    assert watch.over({"type": "auto_retry_start", "attempt": 1}) == "no"
    assert watch.over({"type": "compaction_start", "reason": "overflow"}) == "no"
    assert watch.over({"type": "agent_end", "messages": []}) == "no"
    assert watch.over({"type": "compaction_end", "willRetry": True}) == "no"
    assert watch.over({"type": "agent_end", "messages": []}) == "maybe"
    assert watch.over({"type": "response", "command": "abort", "success": True}) == "yes"


def test_what_the_old_pi_says_after_the_end_of_a_run_does_not_undo_it() -> None:
    watch = drive().watch()
    assert watch.over({"type": "agent_end", "messages": []}) == "maybe"
    assert watch.over({"type": "something_new"}) == "maybe"
    assert watch.over({"type": "auto_retry_end", "success": False, "attempt": 1}) == "yes"
    assert watch.over({"type": "agent_start"}) == "no"
    assert watch.over({"type": "something_new"}) == "no"


def test_a_run_of_the_new_pi_is_over_when_it_has_settled() -> None:
    watch = drive().watch()
    assert watch.over({"type": "agent_end", "messages": [], "willRetry": False}) == "no"
    assert watch.over({"type": "compaction_start", "reason": "threshold"}) == "no"
    assert watch.over({"type": "compaction_end", "willRetry": False}) == "no"
    assert watch.over({"type": "agent_settled"}) == "yes"
    assert watch.over({"type": "response", "command": "abort", "success": True}) == "no"


def test_a_dialog_of_an_extension_needs_the_user_and_a_notice_does_not() -> None:
    asked = {"type": "extension_ui_request", "id": "1", "method": "confirm", "title": "Allow it?"}
    assert events(asked) == [
        Failure(reason=StopReason.NEEDS_USER, code="dialog", message="Allow it?")
    ]
    assert drive().watch().over(asked) == "yes"
    assert drive().watch().over({**asked, "timeout": 1000}) == "no"
    assert drive().watch().over({**asked, "method": "notify"}) == "no"


def test_words_that_were_not_taken_end_the_turn() -> None:
    refused = {"type": "response", "command": "prompt", "success": False, "error": "No API key"}
    assert drive().watch().over(refused) == "yes"
    assert drive().watch().over({**refused, "success": True}) == "no"


if __name__ == "__main__":
    act(PLAYS, "pi")
