"""A real agent with its own default permissions, driven by `segue` commands as a user types them,
against a scripted model. Runs enclosed, as a process of its own:
`python first_hour.py AGENT FOLDER PLAN`; prints what each command answered as one JSON list.

The plan: {"commands": [["run", "TASK", …], …], "calls": [CALL, …], "env": {…}, "files": {…}}.
A call is what the model asks for next: {"sh": COMMAND}, {"write": PATH}, or {"say": WORDS}, which
ends its turn. `{run}` in a command is
the id of the run that the first one began; the command "advised N" is the Nth that the last answer
names to resume it (from 0), typed as it stands there.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from segue.core.sessions.spend import Spend
from segue.drill import casts
from segue.drill.model.answer import ModelAnswer, ModelReply
from segue.drill.model.ask import Ask, Call, Kind, shell_call
from segue.drill.model.server import running
from segue.drill.plays import enclosure

LIMIT_S = 300.0
MODELS = {"claude": ("--model", "claude-sonnet-4-5"), "gemini": ("-m", "gemini-2.5-pro")}
_WRITES = {
    "Write": "file_path",
    "write": "path",
    "write_file": "file_path",
}
"""Tools that write a file, by any agent's name for one, and the argument that holds its path."""

JSON = dict[str, Any]


class Model:
    """Asks for the planned calls, one after the other, whatever became of the one before; then says
    that it is done."""

    def __init__(self, calls: list[JSON]) -> None:
        self.calls = list(calls)
        self.results: list[str] = []

    def answer(self, ask: Ask, now: float) -> ModelAnswer:
        spend = Spend(input_tokens=1_000, output_tokens=10)
        if ask.kind is not Kind.MAIN:
            return ModelAnswer(reply=ModelReply(text="A title", spend=spend))
        if ask.parts and ask.parts[-1].role == "tool":
            self.results.append(ask.parts[-1].text[:300])
        if not self.calls:
            return ModelAnswer(reply=ModelReply(text="It is done.", spend=spend))
        planned = self.calls.pop(0)
        if "say" in planned:
            return ModelAnswer(reply=ModelReply(text=planned["say"], spend=spend))
        call = shell_call(ask, f"call_{uuid.uuid4().hex}", planned.get("sh", ""))
        if ask.wire == "gemini" and call.name == "Bash":
            call = replace(call, name="run_shell_command")
        if "write" in planned:
            call = _write_call(ask, call.id, planned["write"])
        return ModelAnswer(reply=ModelReply(calls=(call,), spend=spend))


def _write_call(ask: Ask, number: str, path: str) -> Call:
    name = next((name for name in ask.tools if name in _WRITES), "")
    if ask.wire == "gemini":  # what needs a yes is not offered, and asked for all the same
        name = "write_file"
    if not name:  # codex has none: it patches by its shell
        patch = f"*** Begin Patch\n*** Add File: {os.path.basename(path)}\n+1\n*** End Patch"
        return shell_call(ask, number, f"apply_patch <<'EOF'\n{patch}\nEOF")
    where = "filePath" if "edit" in ask.tools and "glob" in ask.tools else _WRITES[name]
    return Call(number, "", name, {where: path, "content": "1\n"})


def main(agent: str, folder: Path, plan: JSON) -> None:
    enclosure.demand()
    cast = casts.find(agent)
    model = Model(plan["calls"])
    project = folder / "project"
    with running(model, kind_of=casts.kind_of) as server:
        stage = casts.PlayStage(
            home=folder / "home",
            project=project,
            port=server.port,
            window_tokens=cast.window_tokens,
        )
        for place in (stage.home, stage.home / "tmp", project):
            place.mkdir(parents=True, exist_ok=True)
        cast.prepare(stage)
        _by_default(stage)
        for name, text in plan.get("files", {}).items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        env = dict(cast.driven("PROGRAM", stage).env)
        env.pop("GEMINI_CLI_TRUST_WORKSPACE", None)
        env.pop("IS_SANDBOX", None)
        env |= {"SEGUE_AGENTS": os.environ["SEGUE_AGENTS"], "SEGUE_HOME": str(folder / "segue")}
        env |= plan.get("env", {})
        answered: list[JSON] = []
        run = ""
        for words in plan["commands"]:
            more: dict[str, str] = {}
            argv = [word.replace("{run}", run) for word in words]
            if argv[0] == "advised":
                advised = _advised(answered[-1]["err"])
                assert advised, answered[-1]
                more, argv = _typed(advised[int(argv[1])])
            done = subprocess.run(
                [sys.executable, "-m", "segue", *argv],
                cwd=project,
                env={**env, **more},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            found = re.search(r"run-[0-9a-f]{8}", done.stderr)
            run = run or (found[0] if found else "")
            answered.append(
                {"typed": argv, "code": done.returncode, "out": done.stdout, "err": done.stderr}
            )
    print(json.dumps({"answered": answered, "results": model.results, "left": model.calls}))


def _advised(text: str) -> list[str]:
    """The commands that resume a run, as a screen shows them."""
    lines = (line.strip().removeprefix("next").strip() for line in text.splitlines())
    return [line for line in lines if "segue resume" in line and " # " in line]


def _typed(line: str) -> tuple[dict[str, str], list[str]]:
    """What a shell makes of a command that is pasted."""
    words = shlex.split(line, comments=True)
    place = words.index("segue")
    return dict(word.split("=", 1) for word in words[:place]), words[place + 1 :]


def _by_default(stage: casts.PlayStage) -> None:
    """Takes out of a cast's config what lets the agent do everything."""
    file = stage.home / ".config/opencode/opencode.json"
    if file.is_file():
        config = json.loads(file.read_text())
        config.pop("permission", None)
        file.write_text(json.dumps(config))
    file = stage.home / ".codex/config.toml"
    if file.is_file():
        text = file.read_text()
        begin = text.index("[projects.")
        file.write_text(text[:begin] + text[text.index("[", begin + 1) :])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text()))
