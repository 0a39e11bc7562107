"""What test_run_progress and other tests share."""

import json
import sys
from collections.abc import Mapping
from typing import Any

from support.running import QUICK, Staged

CRASHING = """\
import json, os, sys

here = os.path.dirname(os.path.abspath(__file__))
count = os.path.join(here, "count")
number = int(open(count).read()) + 1 if os.path.exists(count) else 1
open(count, "w").write(str(number))
if number == 1:
    open("written.txt", "w").write("from now on, files that change are what is looked for")
legs = json.load(open(os.path.join(here, "legs.json")))
for record in legs[min(number, len(legs)) - 1]:
    if record == "crash":
        sys.stdout.flush()
        os.kill(os.getpid(), 11)
    print(json.dumps(record), flush=True)
"""


def result(call: str, said: str) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": said}
    return {"type": "user", "message": {"role": "user", "content": [block]}}


SESSION = "3f1c1c52-0000-4000-8000-00000000aaaa"


CLAUDE_END = [
    {"type": "system", "subtype": "init", "session_id": SESSION, "model": "claude-opus-4"},
    {"type": "result", "subtype": "success", "is_error": False, "result": "all done",
     "session_id": SESSION, "usage": {"input_tokens": 900, "output_tokens": 9}},
]  # fmt: skip


def play(s: Staged, like: str, legs: list[list[Any]], policy: Mapping[str, object] = QUICK) -> Any:
    script = s.root / "crashing.py"
    script.write_text(CRASHING)
    (s.root / "legs.json").write_text(json.dumps(legs))
    command = json.dumps([sys.executable, str(script)])
    s.config(f'[agents.crashing]\ncommand = {command}\nlike = "{like}"\n', policy)
    return s.segue("run", "--agent", "crashing", "--json", "release it")
