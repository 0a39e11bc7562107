"""Legs of one agent, started as its drive says, against a scripted model. Runs enclosed, as a
process of its own: `python one_drive.py agent folder '{"legs": […]}'`; prints what came of each
leg as one JSON list."""

import array
import ctypes
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from msgspec.structs import replace

from segue.agents import drives
from segue.agents.contracts.drive import Drive, LegOrder
from segue.agents.custom.drive import Custom, drive_of
from segue.core.sessions.spend import Spend
from segue.drill import casts
from segue.drill.model.answer import ModelAnswer, ModelReply
from segue.drill.model.ask import Ask, Kind, shell_call
from segue.drill.model.server import running
from segue.drill.plays import enclosure

LIMIT_S = 150.0
SUBREAPER = 36
BEHIND = "&"  # before a command: in the background, where the agent has that
FLAGS = {  # what a user would say, so that the shell may be used
    "claude": ("--allowedTools", "Bash", "--model", "claude-sonnet-4-5"),
    "codex": ("--dangerously-bypass-approvals-and-sandbox",),
    "gemini": ("-m", "gemini-2.5-pro", "-y"),
}
LIKE = {"rehearsal": "claude", "rehearsal-codex": "codex"}

JSON = dict[str, Any]


class Model:
    """Has commands run, one after the other, then says that it is done. Whoever is told one of
    `says` is answered at once."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.says: dict[str, str] = {}
        self.asked: list[JSON] = []

    def answer(self, ask: Ask, now: float) -> ModelAnswer:
        parts = [{"role": p.role, "text": p.text} for p in ask.parts if p.role != "system"]
        spend = Spend(input_tokens=1_000, output_tokens=10)
        if ask.kind is Kind.MAIN or ask.kind is Kind.CHECKPOINT:
            self.asked.append({"parts": parts})
            for needle, text in self.says.items():
                if needle in ask.last_text:
                    return ModelAnswer(reply=ModelReply(text=text, spend=spend))
            if self.commands:
                command = self.commands.pop(0)
                call = shell_call(ask, f"call_{uuid.uuid4().hex}", command.removeprefix(BEHIND))
                if command.startswith(BEHIND):
                    call = replace(call, arguments={**call.arguments, "run_in_background": True})
                return ModelAnswer(reply=ModelReply(calls=(call,), spend=spend))
        return ModelAnswer(reply=ModelReply(text="It is done.", spend=spend))


class Play:
    """One agent in one folder."""

    def __init__(self, agent: str, folder: Path, port: int, model: Model) -> None:
        self.cast = casts.find(agent)
        self.folder, self.project, self.model = folder, folder / "project", model
        self.stage = casts.PlayStage(
            home=folder / "home",
            project=self.project,
            port=port,
            window_tokens=self.cast.window_tokens,
        )
        self.cast.prepare(self.stage)
        part = self.cast.start("PROGRAM", self.stage, "", "")
        self.env = dict(part.env)
        self.flags = FLAGS.get(agent, ())
        self.drive = self._drive(agent, list(part.argv))
        looking = {**self.env, "SEGUE_AGENTS": os.environ["SEGUE_AGENTS"]}
        self.command = self.drive.find(looking)
        assert self.command, self.drive.install
        self.session = ""
        self.sessions: list[str] = []
        self.legs = 0

    def _drive(self, agent: str, argv: list[str]) -> Drive:
        if agent not in LIKE:
            found = drives.find(agent)
            assert found is not None
            return found
        argv[0] = sys.executable
        command = argv[: argv.index("-m") + 2]
        custom = Custom(command=tuple(command), like=LIKE[agent], home=self.env["REHEARSAL_HOME"])
        return drive_of(agent, custom)

    def leg(self, plan: JSON) -> JSON:
        self.legs += 1
        self.model.commands = list(plan.get("commands", ()))
        self.model.says = plan.get("says", {})
        self.model.asked = []
        for name, text in plan.get("files", {}).items():
            (self.folder / name).write_text(text)
        if "age" in plan:
            self.age(*plan["age"])
        folder = self.folder / f"leg-{self.legs}"
        folder.mkdir()
        assert self.command is not None
        launch = self.drive.launch(
            LegOrder(
                command=self.command,
                prompt=plan["prompt"],
                session_id=self.wanted(plan),
                new_id=str(uuid.uuid4()),
                flags=(*plan.get("own_flags", self.flags), *plan.get("flags", ())),
                cwd=str(self.project),
                folder=str(folder),
                env=self.env,
            )
        )
        for name, text in launch.files.items():
            (folder / name).write_text(text)
        stdout, stderr = folder / "stdout", folder / "stderr"
        began = time.monotonic()
        with stdout.open("wb") as out, stderr.open("wb") as err:
            process = subprocess.Popen(
                launch.argv,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                cwd=self.project,
                env={**self.env, **launch.env, "PWD": str(self.project)},
                start_new_session=True,
            )
        assert process.stdin is not None
        process.stdin.write(launch.input)
        process.stdin.flush()
        if not launch.stays_open:
            process.stdin.close()
        notes = self.attend(process, stdout, plan)
        try:
            code: int | None = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            code = None
        found: JSON = {
            "exit_code": code,
            "seconds": round(time.monotonic() - began, 2),
            "notes": notes,
            "records": list(records(stdout)),
            "stderr": stderr.read_text(errors="replace")[-2000:],
            "asked": self.model.asked,
            "known_id": launch.session_id,
            "argv": launch.argv,
            "left": sweep(),
        }
        self.session = launch.session_id or told(found["records"])
        self.sessions.append(self.session)
        found["session"] = self.session
        if self.drive.session_file is not None:
            found["file"] = self.drive.session_file(self.session, self.env, str(self.project))
        if plan.get("tidy") and self.drive.tidy is not None:
            self.drive.tidy(self.session, self.env, str(self.project))
        return found

    def wanted(self, plan: JSON) -> str:
        """The session to go on with: the last one (`resume`), or that of an earlier leg."""
        if "of_leg" in plan:
            return self.sessions[int(plan["of_leg"]) - 1]
        return self.session if plan.get("resume") else ""

    def age(self, minute: str, earlier: str) -> None:
        """The session's file was begun earlier, as its name tells."""
        assert self.drive.session_file is not None
        file = Path(self.drive.session_file(self.session, self.env, str(self.project)))
        file.rename(file.with_name(re.sub(minute, earlier, file.name)))

    def attend(self, process: "subprocess.Popen[bytes]", stdout: Path, plan: JSON) -> list[Any]:
        """Does what is planned while it runs; then closes its input when its turn is over."""
        assert process.stdin is not None
        notes: list[Any] = []
        began = time.monotonic()
        for when, act in plan.get("acts", ()):
            until = time.monotonic() + LIMIT_S
            while not self.is_time(when, stdout, process) and process.poll() is None:
                assert time.monotonic() < until, f"{when} never came: {stdout.read_text()}"
                time.sleep(0.02)
            notes.append([round(time.monotonic() - began, 2), act, process.poll()])
            if "say" in act:
                assert self.drive.say is not None
                process.stdin.write(self.drive.say(act["say"], act.get("key", "")))
            if "interrupt" in act:
                if self.drive.interrupt:
                    process.stdin.write(self.drive.interrupt)
                else:
                    process.send_signal(signal.Signals[self.drive.interrupt_signal])
            if "touch" in act:
                (self.project / act["touch"]).touch()
            if "close" in act:
                process.stdin.close()
            with suppress(ValueError):
                process.stdin.flush()
        watch, seen = self.drive.watch(), 0
        until = time.monotonic() + LIMIT_S
        while process.poll() is None and not process.stdin.closed and time.monotonic() < until:
            got = list(records(stdout))
            over = [watch.over(record) for record in got[seen:]]
            seen = len(got)
            if "yes" in over:
                process.stdin.close()
            time.sleep(0.02)
        return notes

    def is_time(self, when: JSON, stdout: Path, process: "subprocess.Popen[bytes]") -> bool:
        if "file" in when:
            return (self.project / str(when["file"])).exists()
        if "taken" in when:  # by the agent, from its input
            assert process.stdin is not None
            waiting = array.array("i", [0])
            fcntl.ioctl(process.stdin, termios.FIONREAD, waiting)
            return waiting[0] == 0
        watch = self.drive.watch()
        got = list(records(stdout))
        if "heard" in when:
            return any(watch.confirmed_key(r) == when["heard"] for r in got)
        if "overs" in when:
            return [watch.over(r) for r in got].count("yes") >= int(when["overs"])
        return True


def records(file: Path) -> Iterator[JSON]:
    for line in file.read_bytes().split(b"\n")[:-1]:
        with suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict):
                yield record


def told(found: list[JSON]) -> str:
    """The session's id, as the agent tells it."""
    for record in found:
        for key in ("thread_id", "session_id"):
            if record.get(key):
                return str(record[key])
    return ""


def sweep() -> list[str]:
    """Ends what the leg left; what that was."""
    left = [p for p in psutil.Process().children(True) if p.status() != psutil.STATUS_ZOMBIE]
    found = []
    for process in left:
        with suppress(psutil.Error):
            found.append(" ".join(process.cmdline()))
            process.kill()
    psutil.wait_procs(left, 5)
    return found


def main(agent: str, folder: Path, plan: JSON) -> None:
    if casts.find(agent).needs_namespace:
        enclosure.demand()
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)  # else what an agent leaves is not found
    (folder / "home").mkdir(parents=True, exist_ok=True)
    model = Model()
    with running(model) as server:
        play = Play(agent, folder, server.port, model)
        print(json.dumps([play.leg(leg) for leg in plan["legs"]]))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text()))
