"""claude's hook after its own compaction, in a leg: `python -I -S halt.py FOLDER`.

Waits for what the summary left out, and prints it. See `agents/shared/halts`. Whatever goes wrong,
it prints nothing and exits with 0: claude then continues as it would have without segue.
"""

import json
import os
import sys
import time

PATIENCE_S = 10.0
_LOOK_S = 0.02


def ask(folder: str) -> str:
    """What the session must be told; "" if nothing."""
    number = 1
    while any(os.path.exists(_file(folder, number, kind)) for kind in ("json", "late")):
        number += 1
    asked, answer, taken = (_file(folder, number, kind) for kind in ("json", "answer", "taken"))
    aside = f"{asked}.{os.getpid()}"
    with open(aside, "w", encoding="utf-8") as file:
        file.write("{}")
    os.rename(aside, asked)
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            os.rename(answer, taken)
        except FileNotFoundError:
            time.sleep(_LOOK_S)
            continue
        with open(taken, encoding="utf-8", errors="surrogatepass") as file:
            return str(json.load(file)["words"])
    os.rename(asked, _file(folder, number, "late"))
    return ""


def _file(folder: str, number: int, kind: str) -> str:
    return os.path.join(folder, f"halt-{number}.{kind}")


def main() -> None:
    """Answers one call of the hook."""
    event = json.load(sys.stdin)
    if event.get("source") != "compact" or event.get("agent_id"):
        return  # a sub-agent has a conversation of its own
    words = ask(sys.argv[1])
    if words:
        answer = {"hookEventName": "SessionStart", "additionalContext": words}
        sys.stdout.write(json.dumps({"hookSpecificOutput": answer}))


if __name__ == "__main__":
    try:
        main()
    except Exception:  # a hook never disturbs claude
        os._exit(0)
