"""opencode as segue drives it, through its server: the real one, isolated, and a forgetful one."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.agents.driven import ODD, Driven, Stage, act, enclosed
from support.waiting import LONG_S

from segue.agents import drives
from segue.agents.contracts.drive import Drive, LegOrder
from segue.agents.contracts.profile import Record
from segue.agents.opencode.drive import BRIDGE
from segue.agents.opencode.profile import knows, parse
from segue.core.stops.events import Ended, Event, Failure, Prompt, ToolCall, ToolResult, Usage
from segue.core.stops.reasons import StopReason
from segue.drill.model.answer import Refusal

HOUR_S = 3600.0


def drive() -> Drive:
    found = drives.find("opencode")
    assert found is not None
    return found


def server_of(leg: Driven) -> psutil.Process:
    (found,) = psutil.Process(leg.process.pid).children()
    return found


def answer_to_strangers(leg: Driven) -> int:
    """What the server says to a request without the password."""
    said = (leg.folder / "stderr").read_text()
    url = next(word for word in said.split() if word.startswith("http://127.0.0.1:"))
    try:
        with urllib.request.urlopen(f"{url}/session", timeout=LONG_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


# Plays


def talk(stage: Stage) -> None:
    """More words while a tool runs; a stop and new words; its end; and another process."""
    model = stage.model
    model.commands = ["touch one; sleep 1; echo said; exit 3"]
    leg = stage.leg("Do it.", flags=("--model", "drill/drill-model", "--agent=build"))
    leg.until(stage.made("one"))
    assert answer_to_strangers(leg) == 401
    leg.say("And this.", "k1")
    leg.until_over()
    assert [p.text for p in model.asked[-1].parts if p.role == "user"] == ["Do it.", "And this."]
    assert leg.heard == ["first", "k1"]
    assert leg.size() == (model.counted, 200_000)
    (call,) = [e for e in leg.events if isinstance(e, ToolCall)]
    (result,) = [e for e in leg.events if isinstance(e, ToolResult)]
    assert call.command == "touch one; sleep 1; echo said; exit 3"
    assert (result.exit_code, result.failed) == (3, True)

    model.commands = ["touch two; sleep 300"]
    leg.say("A long one.", "k2")
    leg.until(stage.made("two"))
    leg.give(drive().interrupt + drive().say("Now this.", "k3"))  # type: ignore[misc]
    leg.until(lambda: "k3" in leg.heard)
    leg.until_over(3)
    assert model.asked[-1].last_text == "Now this."
    assert leg.overs == ["yes", "yes", "yes"], "a turn is over once"
    assert leg.close() == 0
    assert leg.stop(0).reason is StopReason.COMPLETED
    session = leg.live.session_id
    file = drive().session_file(session, stage.env, str(stage.project))  # type: ignore[misc]
    assert Path(file).name == "opencode.db"

    again = stage.leg(ODD, session_id=session)
    again.until_over()
    whole = ODD.encode("utf-16", "surrogatepass").decode("utf-16")
    assert model.asked[-1].last_text == whole
    assert model.asked[-1].parts[1].text == "Do it.", "it began anew"
    assert [e.text for e in again.events if isinstance(e, Prompt)] == [whole]
    assert again.live.session_id == session
    assert again.size() == (model.counted, 200_000)

    model.commands = ["touch three; sleep 0.5"]
    again.say("One more.", "k4")
    again.until(stage.made("three"))
    server_of(again).kill()
    code = again.ended()
    assert code == 1
    assert again.records[-1]["type"] == "bridge.server_exited"
    assert again.stop(code).reason is StopReason.CRASH
    psutil.wait_procs(psutil.Process().children(True), 10)  # the tool's last moments


def waits(stage: Stage) -> None:
    """It would sit out a long limit, and wait for an answer for ever: segue is told, and goes."""
    stage.model.refusal = Refusal(fault="rate_limit", retry_after_s=HOUR_S)
    limited = stage.leg("Do it.")
    limited.until_over()
    code = limited.close()
    stop = limited.stop(code)
    assert (code, stop.reason) == (1, StopReason.RATE_LIMIT)
    assert stop.retry_after_s is not None
    assert HOUR_S - 60 < stop.retry_after_s <= HOUR_S
    stage.model.refusal = None

    config = stage.stage.home / ".config/opencode/opencode.json"
    told = json.loads(config.read_text())
    config.write_text(json.dumps({**told, "permission": {"bash": "ask"}}))
    stage.model.commands = ["touch forbidden"]
    asks = stage.leg("Do it.", session_id=limited.live.session_id)
    asks.until_over()
    code = asks.close()
    assert (code, asks.stop(code).reason) == (1, StopReason.NEEDS_USER)
    assert not stage.made("forbidden")()


def ends(stage: Stage) -> None:
    """A signal in a tool ends all; what cannot begin says why."""
    stage.model.commands = ["touch one; sleep 300"]
    leg = stage.leg("Do it.")
    leg.until(stage.made("one"))
    leg.process.send_signal(signal.SIGTERM)
    assert leg.ended() == 143
    assert leg.stop(143).reason is StopReason.USER_EXIT

    gone = stage.leg("Go on.", session_id="ses_nosuch")
    code = gone.ended()
    assert (code, gone.stop(code).reason) == (1, StopReason.ERROR)
    assert "Session not found" in gone.told()

    nobody = stage.leg("Do it.", flags=("--agent", "nobody"))
    nobody.until_over()
    assert nobody.close() == 1
    assert [e.message for e in nobody.events if isinstance(e, Failure)] == [
        'Agent not found: "nobody". Available agents: build, explore, general, plan'
    ]


PLAYS = {"talk": talk, "waits": waits, "ends": ends}


@pytest.mark.real_agent
@pytest.mark.parametrize("play", PLAYS)
def test_the_real_opencode_is_driven(play: str, tmp_path: Path) -> None:
    enclosed(__file__, play, tmp_path, "opencode")


# A server that drops the event stream in the middle of a turn

FAKE = """
import json, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

S = "ses_1"
away, streams = threading.Event(), []

def message(ident, role, **more):
    return {"id": ident, "sessionID": S, "role": role, "time": {"created": 9e15}, **more}

def part(ident, message, **more):
    return {"id": ident, "sessionID": S, "messageID": message, **more}

ASKED = message("msg_1", "user")
WORDS = {"type": "text", "text": "Do it.", "metadata": {"segue": "first"}}
SAID = message("msg_2", "assistant", providerID="p", modelID="m")
RUNS = {"type": "tool", "tool": "bash", "callID": "c1"}
BEGUN = {**RUNS, "state": {"status": "running", "input": {"command": "ls"}}}
DONE = {**RUNS, "state": {"status": "completed", "input": {"command": "ls"}, "output": "x"}}
END = {"type": "step-finish", "reason": "stop", "tokens": {"total": 5}}
OVER = {**SAID, "finish": "stop", "time": {"created": 9e15, "completed": 9e15}}

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def say(self, value, status=200):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def event(self, kind, **what):
        record = {"type": kind, "properties": {"sessionID": S, **what}}
        self.wfile.write(b"data: " + json.dumps(record).encode() + b"\\n\\n")
        self.wfile.flush()

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("prompt_async"):
            streams[0].set()
            self.send_response(204)
            self.end_headers()
        else:
            self.say({"id": S})

    def do_GET(self):
        if self.path == "/event":
            return self.stream()
        if self.path.startswith(f"/session/{S}/message"):
            parts = [part("prt_2", "msg_2", **DONE), part("prt_3", "msg_2", **END)]
            words = [part("prt_1", "msg_1", **WORDS)]
            return self.say([{"info": ASKED, "parts": words}, {"info": OVER, "parts": parts}])
        models = {"m": {"limit": {"context": 100, "input": 80, "output": 9}}}
        self.say({
            "/global/health": {"version": "0"},
            "/session/status": {},
            "/permission": [],
            "/question": [],
            "/config/providers": {"providers": [{"id": "p", "models": models}]},
        }[self.path])

    def stream(self):
        self.close_connection = True
        self.send_response(200)
        self.end_headers()
        prompted = threading.Event()
        streams.append(prompted)
        self.event("server.connected")
        if len(streams) > 1:  # what it says late is not told twice
            self.event("message.part.updated", part=part("prt_2", "msg_2", **DONE))
            time.sleep(60)
        prompted.wait()
        self.event("session.status", status={"type": "busy"})
        self.event("message.updated", info=ASKED)
        self.event("message.part.updated", part=part("prt_1", "msg_1", **WORDS))
        self.event("message.updated", info=SAID)
        self.event("message.part.updated", part=part("prt_2", "msg_2", **BEGUN))

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"opencode server listening on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
"""


def test_events_that_were_missed_are_reported_once_when_the_stream_is_back(tmp_path: Path) -> None:
    program = tmp_path / "opencode"
    program.write_text(f"#!{sys.executable}\n{FAKE}")
    program.chmod(0o700)
    prompt = drive().say("Do it.", "first")  # type: ignore[misc]
    argv = [sys.executable, "-I", "-S", str(BRIDGE), "--", str(program)]
    done = subprocess.run(argv, input=prompt, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    events = list(parse(Record(record) for record in records))
    assert [e.text for e in events if isinstance(e, Prompt)] == ["Do it."]
    assert len([e for e in events if isinstance(e, ToolCall)]) == 1
    assert len([e for e in events if isinstance(e, ToolResult)]) == 1
    sizes = [(e.used_tokens, e.window_tokens) for e in events if isinstance(e, Usage)]
    assert sizes == [(5, 80)], "the input is what fills up"
    assert [e.ok for e in events if isinstance(e, Ended)] == [True]
    assert records[-1]["type"] == "bridge.idle"


def test_a_program_that_is_no_server_is_told_at_once(tmp_path: Path) -> None:
    argv = [sys.executable, "-I", "-S", str(BRIDGE), "--", "/bin/false"]
    done = subprocess.run(argv, capture_output=True, timeout=60, check=False)
    (record,) = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, record["type"]) == (1, "bridge.server_exited")
    argv[-1] = str(tmp_path / "nothing")
    done = subprocess.run(argv, capture_output=True, timeout=60, check=False)
    (record,) = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, record["type"]) == (1, "bridge.error")


# Without an agent


def events(*records: dict[str, Any]) -> list[Event]:
    return list(parse(Record(record) for record in records))


def bridge(kind: str, **what: Any) -> dict[str, Any]:
    record = {"type": f"bridge.{kind}", "properties": what}
    assert knows(record)
    return record


ABORTED = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}


def test_how_we_ended_it_is_not_why_it_stopped() -> None:
    error = {"type": "session.error", "properties": {"sessionID": "s", "error": ABORTED}}
    wait = bridge("long_wait", message="Rate limit reached.", until=1794808208099, wait_s=600.0)
    limit = Failure(message="Rate limit reached.", code="long_wait", resets_at=1794808208.099)
    assert events(wait, bridge("closing", **{"while": "retry"}), error) == [limit]
    assert isinstance(events(wait, error)[-1], Failure)
    assert events(wait, error)[-1] != limit


def test_a_sub_agents_question_needs_the_user_too() -> None:
    child = {"id": "ses_2", "parentID": "ses_1"}
    created = {"type": "session.created", "properties": {"sessionID": "ses_2", "info": child}}
    asked = {"type": "permission.asked", "properties": {"sessionID": "ses_2", "id": "per_1"}}
    (found,) = events(created, asked)
    assert isinstance(found, Failure)
    assert found.reason is StopReason.NEEDS_USER
    assert drive().watch().over(asked) == "yes"


def test_a_sub_agent_that_is_idle_ends_no_turn() -> None:
    watch = drive().watch()
    watch.over(bridge("session", id="ses_1"))
    idle = {"type": "session.idle", "properties": {"sessionID": "ses_2"}}
    assert watch.over(idle) == "no"
    assert watch.over({**idle, "properties": {"sessionID": "ses_1"}}) == "yes"


@pytest.mark.parametrize("flag", ["--session", "--format", "--auto", "--share", "--port=1", "word"])
def test_flags_that_the_server_does_not_take_are_refused_by_name(flag: str) -> None:
    assert flag.partition("=")[0] in drive().refuses([flag])


def test_flags_for_prompts_and_for_the_server_go_their_ways() -> None:
    flags = ("-m", "a/b/c", "--agent=plan", "--variant", "high", "--log-level", "DEBUG", "--pure")
    assert drive().refuses(flags) == ""
    launch = drive().launch(
        LegOrder(command=("oc",), prompt="x", flags=flags, cwd="/", folder="/", env=os.environ)
    )
    options = ("--model", "a/b/c", "--agent", "plan", "--variant", "high")
    assert launch.argv[4:] == (*options, "--", "oc", "--log-level=DEBUG", "--pure")
    assert "provider" in drive().refuses(["--model", "alone"])
    assert "value" in drive().refuses(["--model"])


if __name__ == "__main__":
    act(PLAYS, "opencode")
