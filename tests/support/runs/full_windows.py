"""What test_full_window_runs and other tests share."""

import json
from pathlib import Path
from typing import Any

WINDOW = 1_000_000


SMALL = 20_000


def turn(used_tokens: int, command: str = "", text: str = "Working.") -> str:
    """A reply after which the window holds so many tokens. A stream tells one token of output: the
    rest is only known once a reply is whole."""
    usage = (
        f"{{input_tokens = 9, cache_read_tokens = {max(0, used_tokens - 10)}, output_tokens = 1}}"
    )
    if used_tokens == 0:
        usage = "{output_tokens = 1}"
    run = f"command = {json.dumps(command)}\n" if command else ""
    return f"[[turns]]\ntext = {json.dumps(text)}\n{run}usage = {usage}\n"


def rule(**says: Any) -> str:
    """The answer to a request for a checkpoint."""
    said = "".join(f"{key} = {json.dumps(value)}\n" for key, value in says.items())
    return f'[[rules]]\nkind = "checkpoint"\n{said}'


def scenario(folder: Path, *parts: str, options: str = "") -> Path:
    file = folder / "scenario.toml"
    context = f"[context]\nwindow_tokens = {WINDOW}\nrefuses = false\n"
    file.write_text(f'about = "A full window."\n{context}{options}{"".join(parts)}')
    return file


LATE = turn(900_000, "sleep 5")  # ended as soon as it is asked for a checkpoint


END = turn(SMALL, text="All is done.")
