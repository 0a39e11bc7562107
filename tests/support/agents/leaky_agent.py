"""An agent that prints secrets, in the form of claude's stream: in its words, its commands, their
results, its todos, its checkpoint and its error. The first session is too long, the second is done.

    python leaky_agent.py SECRETS_FILE [claude's flags]
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

TEXTS: list[str] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
ASKED = Path(sys.argv[1] + ".asked")


def flag(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else ""


def put(**record: object) -> None:
    print(json.dumps({"session_id": SESSION, **record}), flush=True)


def say(*content: Mapping[str, object]) -> None:
    usage = {"input_tokens": 100, "output_tokens": 10}
    message: dict[str, object] = {"id": "msg_1", "role": "assistant", "model": "claude-x"}
    put(type="assistant", message={**message, "usage": usage, "content": list(content)})


SESSION = flag("--session-id") or flag("--resume") or "s-1"
put(type="system", subtype="init", cwd=".", model="claude-x", tools=["Bash"])
prompt = sys.stdin.readline()
if ASKED.exists():
    say({"type": "text", "text": "All done. " + TEXTS[0]})
    put(type="result", subtype="success", is_error=False, result="All done. " + TEXTS[0])
    sys.exit(0)
ASKED.write_text(prompt)
for number, text in enumerate(TEXTS):
    say({"type": "text", "text": f"Step {number}: {text}"})
    call = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": text}}
    say(call)
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": text}
    put(type="user", message={"role": "user", "content": [result]})
todos = [{"content": text, "status": "pending", "activeForm": text} for text in TEXTS]
say({"type": "tool_use", "id": "todo", "name": "TodoWrite", "input": {"todos": todos}})
done = {"type": "tool_result", "tool_use_id": "todo", "content": "ok"}
put(type="user", message={"role": "user", "content": [done]})
put(type="system", subtype="compact_boundary", compact_metadata={"pre_tokens": 9, "post_tokens": 5})
summary = "This session is being continued from a previous conversation. " + "\n".join(TEXTS)
put(type="user", message={"role": "user", "content": summary}, isCompactSummary=True)
say({"type": "text", "text": "Going on."})
error = "Prompt is too long: " + " ".join(TEXTS[:1])
say({"type": "text", "text": error})
sys.stderr.write("\n".join(TEXTS))
put(type="result", subtype="success", is_error=True, result=error)
sys.exit(1)
