"""Agents in a tmux of a test's own, as small as they can be: what the daemon sees of an agent is
its process, the file that it holds, and what stands in there.

Run as a program called `codex`, it is one: begun with words it answers, or works for ever if its
environment says so; resumed it answers. What it did and when stands in STANDIN_LOG.
"""

import json
import os
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from segue.drill.rehearsal.claude_file import new_id
from segue.drill.rehearsal.codex_file import NO_USAGE, Rollout, find
from support.homes import OpencodeDb
from support.paths import SCRIPT
from support.terminals.panes import Server
from support.waiting import until

HOUR = 3600.0
REPLY_S = 1.0
WINDOW = 200_000


def install(folder: Path) -> Path:
    """A `codex` for the PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "codex"
    code = f"import runpy, sys; sys.argv[0] = {str(program)!r}; sys.dont_write_bytecode = True\n"
    code += f"sys.path.insert(0, {str(Path(SCRIPT).parent)!r})\n"
    program.write_text(
        f"#!{sys.executable}\n{code}runpy.run_path({__file__!r}, run_name='__main__')\n"
    )
    program.chmod(0o755)
    return program


def log() -> list[dict[str, Any]]:
    """What the stand-ins did, in order."""
    try:
        lines = Path(os.environ["STANDIN_LOG"]).read_text().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


class LimitedOpencode:
    """A session of opencode's, open in a pane, whose last message was refused."""

    def __init__(self, own_home: Path, cwd: Path) -> None:
        self.db = OpencodeDb(own_home / ".local/share/opencode/opencode.db")
        now = time.time()
        self.db.session("ses_1", str(cwd), now)
        self.db.message("msg_0000", "ses_1", now, role="user")
        said = "Paint the fence. The key is under the blue stone."
        self.db.part("prt_0000", "msg_0000", "ses_1", now, type="text", text=said)
        self.db.answer(1, "ses_1", now, 9_000)
        self.cwd = cwd

    def open(self, server: Server, folder: Path) -> None:
        """A process by opencode's name in a pane, that has the session's database open."""
        folder.mkdir()
        program = folder / "opencode"
        shutil.copy(os.path.realpath(shutil.which("sleep") or "/bin/sleep"), program)
        line = f"exec {shlex.quote(str(program))} 600 3<{shlex.quote(str(self.db.path))}"
        pane = server.tmux.new_window(str(self.cwd), ("sh", "-c", line), {}, "opencode")
        asked = ("display", "-p", "-t", pane, "#{pane_current_command}")
        until(lambda: server.tmux.run(*asked).strip() == "opencode")

    def refuse(self, hours: float) -> None:
        at = time.time()
        self.db.message("msg_0002a", "ses_1", at, role="user")
        self.db.part("prt_0002a", "msg_0002a", "ses_1", at, type="text", text="go on")
        said = "You have reached your usage limit."
        body = json.dumps({"error": {"type": "usage_limit_reached", "message": said}})
        data = {"message": said, "statusCode": 429, "isRetryable": False, "responseBody": body}
        data["responseHeaders"] = {"retry-after": str(round(hours * HOUR))}
        error = {"name": "APIError", "data": data}
        self.db.message(
            "msg_0002b", "ses_1", at, role="assistant", modelID="test-model", providerID="fake",
            error=error,
        )  # fmt: skip


def _note(rollout: Rollout, event: str, **more: Any) -> None:
    told = {"event": event, "session": rollout.thread, "at": time.time(), "pid": os.getpid()}
    with open(os.environ["STANDIN_LOG"], "a") as file:
        file.write(json.dumps({**told, **more}) + "\n")


def _main(arguments: list[str]) -> None:
    home = Path(os.environ["CODEX_HOME"])
    thread = arguments[arguments.index("resume") + 1] if "resume" in arguments else ""
    rollout = Rollout(home, find(home, thread) if thread else None)
    turn, prompt = new_id(), arguments[-1] if arguments else ""
    if not thread:
        rollout.meta(os.getcwd())
    rollout.event("task_started", turn_id=turn, model_context_window=WINDOW)
    message = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": prompt}],
    }
    rollout.add("response_item", message)
    rollout.item("UserMessage", turn, content=[{"type": "text", "text": prompt}])
    _note(rollout, "began", prompt=prompt, arguments=arguments, resumes=bool(thread))
    used = {**NO_USAGE, "input_tokens": 9_000, "total_tokens": 9_000}
    if thread or not os.environ.get("STANDIN_WORKS"):
        time.sleep(REPLY_S)  # a model takes its time
        rollout.counted(used, used, WINDOW, {})
        _note(rollout, "replied")
        rollout.event("task_complete", turn_id=turn, last_agent_message="Done.")
    while True:
        signal.pause()


if __name__ == "__main__":
    _main(sys.argv[1:])
