"""One leg of one agent against a scripted model that knows two answers. Runs enclosed, as a process
of its own: `python one_leg.py agent program folder '{"prompt": …, "commands": […]}'`; prints what
came of it as one JSON line."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from segue.core.sessions.spend import Spend
from segue.drill import casts
from segue.drill.model.answer import ModelAnswer, ModelReply, Refusal
from segue.drill.model.ask import Ask, Kind, shell_call
from segue.drill.model.server import running
from segue.drill.plays import enclosure
from segue.drill.plays.process import PlayLeg

LIMIT_S = 120.0


class Model:
    """Has commands run, one after the other, then says that it is done. If the window is to be
    full, it is after the first command, until a summary was asked for."""

    def __init__(self, commands: list[str], window_tokens: int, is_full: bool) -> None:
        self.commands = commands
        self.window_tokens = window_tokens
        self.is_full = is_full
        self.kinds: list[str] = []

    def answer(self, ask: Ask, now: float) -> ModelAnswer:
        self.kinds.append(ask.kind.value)
        spend = Spend(input_tokens=1_000, output_tokens=10)
        if ask.kind is Kind.COMPACTION:
            self.is_full = False
            text = "<analysis>x</analysis><summary>All is well.</summary>"
            if ask.wire == "gemini":
                text = "<state_snapshot>All is well.</state_snapshot>"
            return ModelAnswer(reply=ModelReply(text=text, spend=spend))
        if ask.kind is not Kind.MAIN:
            return ModelAnswer(reply=ModelReply(text="A short name", spend=spend))
        if self.is_full:
            if ask.wire == "anthropic" and len(self.commands) == 0:
                return ModelAnswer(
                    refusal=Refusal(
                        fault="too_long",
                        used_tokens=self.window_tokens + 1,
                        window_tokens=self.window_tokens,
                    )
                )
            # Gemini sends nothing more if what comes might not fit.
            share = 0.6 if ask.wire == "gemini" else 0.97
            spend = Spend(input_tokens=int(self.window_tokens * share), output_tokens=10)
        if not self.commands:
            return ModelAnswer(reply=ModelReply(text="It is done.", spend=spend))
        call = shell_call(ask, f"call_{len(self.kinds)}", self.commands.pop(0))
        return ModelAnswer(reply=ModelReply(calls=(call,), spend=spend))


def main(agent: str, program: str, folder: Path, play: dict[str, Any]) -> None:
    enclosure.demand()
    cast = casts.find(agent)
    model = Model(play["commands"], cast.window_tokens, play.get("is_full", False))
    signal = play.get("signal", "")
    home, project = folder / "home", folder / "project"
    with running(model) as server:
        stage = casts.PlayStage(
            home=home, project=project, port=server.port, window_tokens=cast.window_tokens
        )
        cast.prepare(stage)
        part = cast.start(program, stage, play["prompt"], play.get("session", ""))
        began = time.monotonic()
        with PlayLeg.start(
            part.argv,
            env=part.env,
            cwd=project,
            stdin=part.stdin,
            stdout=folder / "stdout",
            stderr=folder / "stderr",
            must_be_enclosed=cast.needs_namespace,
        ) as leg:
            if signal:
                until = began + LIMIT_S
                while not (project / "begun").exists() and time.monotonic() < until:
                    leg.wait(0.02)
                leg.signal(signal)
            code = leg.wait(LIMIT_S)
            seconds = time.monotonic() - began
            swept = leg.sweep()
        strange = [r.path for r in server.requests if not r.wire]
    left = [p for p in psutil.Process().children(True) if p.status() != psutil.STATUS_ZOMBIE]
    session, transcript = cast.session(stage)
    found = {
        "exit_code": code,
        "seconds": round(seconds, 2),
        "session": session,
        "transcript": str(transcript or ""),
        "kinds": model.kinds,
        "strange": strange,
        "swept": [e.argv for e in swept],
        "left": [p.cmdline() for p in left],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), json.loads(sys.argv[4]))
