"""Checks that an MCP server starts, before an agent is told to start it in every session."""

import json
import os
import subprocess
from collections.abc import Sequence

_LIMIT_S = 60.0
_HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "segue setup", "version": "1"},
    },
}


def why_not(argv: Sequence[str]) -> str:
    """Why this server cannot be used, in one line; "" if it answers. Its stdin ends after the first
    message, and so does the server."""
    try:
        done = subprocess.run(  # noqa: S603
            argv,
            input=json.dumps(_HELLO).encode() + b"\n",
            capture_output=True,
            timeout=_LIMIT_S,
            cwd=os.path.sep,
            check=False,
        )
    except OSError as fault:
        return fault.strerror or type(fault).__name__
    except subprocess.TimeoutExpired:
        return f"no answer in {_LIMIT_S:.0f} s"
    if any(map(_is_welcome, done.stdout.splitlines())):
        return ""
    errors = done.stderr.decode(errors="replace").strip().splitlines()
    return errors[-1].strip() if errors else f"no answer, exit code {done.returncode}"


def _is_welcome(line: bytes) -> bool:
    try:
        answer = json.loads(line)
    except ValueError:
        return False
    return isinstance(answer, dict) and isinstance(answer.get("result"), dict)
