"""Code that casts share: the agents' programs, and their private files."""

import json
from collections.abc import Iterator
from pathlib import Path

from segue.agents.installed import ARCH, NODES, native, node, script
from segue.drill.casts import PlayStage

__all__ = ["ARCH", "NODES", "SCRIPT", "native", "newest", "node", "script", "write"]

SCRIPT = "run `scripts/agents` in a checkout of segue"


def newest(files: Iterator[Path]) -> Path | None:
    """The most recently written file."""
    return max(files, key=lambda file: file.stat().st_mtime_ns, default=None)


def write(stage: PlayStage, path: str, content: object) -> None:
    """Writes a private config file (as JSON, unless it is text) and creates the folder for
    temporary files."""
    text = content if isinstance(content, str) else json.dumps(content, indent=1)
    file = stage.home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    (stage.home / "tmp").mkdir(exist_ok=True)
