"""An agent that is refused what it asks for: a run with it needs the user."""

DENIED = """\
import json
def say(**record):
    print(json.dumps({"session_id": "s", **record}), flush=True)
def speak(block):
    message = {"id": "msg_1", "model": "claude-sonnet-4-5", "role": "assistant", "content": [block]}
    say(type="assistant", message=message, parent_tool_use_id=None)
speak({"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "make deploy"}})
result = {"type": "tool_result", "tool_use_id": "c1", "is_error": True,
          "content": "This command requires approval"}
say(type="user", message={"role": "user", "content": [result]}, parent_tool_use_id=None,
    tool_result_meta=[{"id": "c1", "non_execution_kind": "permission-denied"}])
speak({"type": "text", "text": "I was not allowed to."})
say(type="result", subtype="success", is_error=False, terminal_reason="completed", num_turns=2,
    result="I was not allowed to.", permission_denials=[{"tool_name": "Bash", "tool_use_id": "c1"}])
"""
