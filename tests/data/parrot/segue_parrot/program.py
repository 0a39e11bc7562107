"""The agent itself: says what it is told, writes its session down, and may be limited.

`parrot [--resume ID] [--limited] PROMPT` prints records; its session is in
`~/.parrot/sessions/ID.jsonl`.
"""

import json
import sys
import time
import uuid
from pathlib import Path


def main() -> None:
    """One turn."""
    words = sys.argv[1:]
    if words == ["--version"]:
        sys.stdout.write("parrot 1.0\n")
        return
    session = words[words.index("--resume") + 1] if "--resume" in words else str(uuid.uuid4())
    place = Path.home() / ".parrot" / "sessions"
    place.mkdir(parents=True, exist_ok=True)
    with (place / f"{session}.jsonl").open("a", encoding="utf-8") as file:

        def tell(squawk: str, **more: object) -> None:
            line = json.dumps({"squawk": squawk, "at": time.time(), **more})
            file.write(line + "\n")
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

        tell("hello", session=session, cwd=str(Path.cwd()))
        tell("heard", text=words[-1])
        if "--limited" in words:
            tell("limit", resets_at=time.time() + 3600, text="Too many crackers. Try again later.")
            sys.exit(1)
        tell("say", text=words[-1], used=1200, window=10_000)
        tell("bye")
