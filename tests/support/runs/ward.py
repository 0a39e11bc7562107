"""Sessions that die without segue, and segue beside them: real processes of one or two agents, one
home, and one scripted model for both or one for each. Also a program, for agents that must be
enclosed:

    python tests/script.py ward PLAN    # JSON in, JSON out
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from segue.drill import casts
from segue.drill.model.script import Script
from segue.drill.model.server import Running, running
from segue.drill.plays import job
from segue.drill.plays.job import Continuity
from segue.drill.scenarios import load
from segue.drill.scenarios.types import Scenario
from support.waiting import until

LONG_S = 240.0  # nothing takes that long; a test that waits so long has failed
POLICY = {
    "reset_jitter_min_s": 0.1,
    "reset_jitter_max_s": 0.5,
    "unknown_reset_wait_s": 1.0,
    "unknown_reset_max_s": 3.0,
}


class Ended:
    """A command of segue that is over."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Ward:
    """Where they die, and are rescued."""

    def __init__(
        self,
        root: Path,
        scenario: Scenario,
        names: Sequence[str],
        servers: Sequence[Running],
        window: int,
    ) -> None:
        self.root, self.scenario, self.server = root, scenario, servers[0]
        self.servers = dict(zip(names, servers, strict=True))
        self.home, self.project = root / "home", root / "project"
        self.casts = {name: casts.find(name) for name in names}
        self.stages = {
            name: casts.PlayStage(
                home=self.home,
                project=self.project,
                port=server.port,
                window_tokens=window if server is self.server else casts.find(name).window_tokens,
                options=scenario.options.get(name, {}),
            )
            for name, server in self.servers.items()
        }
        self.programs: dict[str, str] = {}
        self.env: dict[str, str] = {}
        self.task = job.make(self.project, scenario.job)
        conf = ""
        for name, cast in self.casts.items():
            cast.prepare(self.stages[name])
            program = cast.find(os.environ)
            assert program is not None, f"{name} is not installed"
            self.programs[name] = program
            driven = cast.driven(program, self.stages[name])
            self.env = {**self.env, **driven.env}
            conf += f"[agents.{cast.agent}]\ncommand = {json.dumps(list(driven.command))}\n"
            conf += f'like = "{cast.agent}"\n'
            conf += f"[run.flags]\n{cast.agent} = {json.dumps(list(driven.flags))}\n"
        head, *rest = conf.split("[run.flags]\n")
        tables = [part.partition("\n") for part in rest]
        flags = "".join(f"{first}\n" for first, _, _ in tables)
        conf = f"{head}{''.join(after for _, _, after in tables)}[run.flags]\n{flags}"
        conf += "[policy]\n" + "".join(f"{k} = {v}\n" for k, v in POLICY.items())
        self.env |= {"SEGUE_HOME": str(root / "segue"), "TZ": "UTC"}
        (root / "segue").mkdir(exist_ok=True)
        (root / "segue" / "config.toml").write_text(conf)

    def start(self, name: str) -> "subprocess.Popen[bytes]":
        """The agent alone, as its user starts it."""
        part = self.casts[name].start(self.programs[name], self.stages[name], self.task, "")
        given = self.root / "stdin"
        given.write_bytes(part.stdin)
        with given.open("rb") as file, (self.root / "bare.out").open("wb") as out:
            return subprocess.Popen(
                list(part.argv),
                env=dict(part.env),
                cwd=self.project,
                stdin=file,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def dies(
        self,
        name: str,
        *,
        in_step: int | None = None,
        once_answered: str = "",
        cut: bool = False,
    ) -> str:
        """It works until it ends, or is killed in that step, of which nobody sees the end, or once
        the model has given that answer (some try again for ever); its session's id. `cut`: the
        last record is not whole."""
        process = self.start(name)
        try:
            if in_step is not None:
                until(lambda: job.current(self.project) == in_step or process.poll() is not None)
                process.send_signal(signal.SIGKILL)
            elif once_answered:
                until(lambda: self._answered(once_answered) or process.poll() is not None)
                process.send_signal(signal.SIGKILL)
            process.wait(LONG_S)
        finally:
            process.kill()
            process.wait()
        until(lambda: job.current(self.project) is None)  # what it left behind goes on alone
        session, file = self.casts[name].session(self.stages[name])
        assert session, (self.root / "bare.out").read_text()
        assert file is not None
        if cut:
            data = file.read_bytes()
            last = data.rstrip(b"\n").rfind(b"\n") + 1
            file.write_bytes(data[: last + (len(data) - last) // 2])
        return session

    def _answered(self, what: str) -> bool:
        """Whether that answer was given, and heard to its end."""
        return any(r.answered == what and r.is_finished for r in self.server.requests)

    def file(self, name: str) -> Path:
        """The newest session's."""
        found = self.casts[name].session(self.stages[name])[1]
        assert found is not None
        return found

    def segue(self, *words: str, script: Path | None = None, **env: str) -> Ended:
        """A command of segue, to its end."""
        first = ["-c", "from segue.start import main; main()"] if script is None else [str(script)]
        done = subprocess.run(
            [sys.executable, *first, *words],
            env={**self.env, **env},
            cwd=self.project,
            capture_output=True,
            text=True,
            timeout=LONG_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def begin(self, *words: str) -> "subprocess.Popen[bytes]":
        """A command of segue, in the background."""
        return subprocess.Popen(
            [sys.executable, "-c", "from segue.start import main; main()", *words],
            env=self.env,
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def continuity(self, *, finished: bool = True) -> Continuity:
        return job.check(self.project, self.scenario.job, finished=finished)


@contextmanager
def ward(
    root: Path, scenario: str | Path, *names: str, each_its_own: bool = False
) -> Iterator[Ward]:
    """The first name is whose session dies. `each_its_own`: what befalls it befalls its provider
    alone; the other agent has a model that does its work."""
    played = load.load(scenario)
    context = played.context
    window = (context.window_tokens if context else None) or casts.find(names[0]).window_tokens
    for place in (root / "home" / "tmp", root / "project"):
        place.mkdir(parents=True, exist_ok=True)
    calm = Scenario(about="Nothing happens.", job=played.job)
    with ExitStack() as stack:
        server = stack.enter_context(running(Script(played, window_tokens=window)))
        servers = [server]
        for name in names[1:]:
            if each_its_own:
                script = Script(calm, window_tokens=casts.find(name).window_tokens, seed=1)
                server = stack.enter_context(running(script))
            servers.append(server)
        yield Ward(root, played, names, servers, window)


def play(plan: Mapping[str, Any]) -> dict[str, Any]:
    """One death and one rescue, by real agents."""
    names = list(dict.fromkeys((plan["dies"], plan["rescues"])))
    with ward(Path(plan["root"]), plan["scenario"], *names, each_its_own=True) as w:
        session = w.dies(plan["dies"], **plan.get("death", {}))
        before = w.continuity(finished=False)
        listed = w.segue("rescue", "--json")
        other = [] if plan["rescues"] == plan["dies"] else ["--agent", plan["rescues"]]
        asked = len(w.server.requests)
        ended = w.segue("rescue", session, *other, *plan.get("more", ()))
        shown = w.segue("show", "--json")
        found = w.continuity()
        return {
            "session": session,
            "listed": json.loads(listed.out or "{}"),
            "listed_err": listed.err,
            "code": ended.code,
            "out": ended.out,
            "err": ended.err,
            "before": list(before.done),
            "done": list(found.done),
            "is_whole": found.is_whole,
            "shown": json.loads(shown.out or "{}"),
            "asked_again": len(w.server.requests) - asked,
            "requests": {name: len(server.requests) for name, server in w.servers.items()},
        }


if __name__ == "__main__":
    print(json.dumps(play(json.loads(Path(sys.argv[1]).read_text()))))
