"""Ordinary files that an agent shows are not its ending.

Earlier tools of this kind would have resumed after 1.4% of ordinary Markdown files. Here the
standard library's own sources and texts are read as if they were the end of a screen: full of
"error", "timeout", "killed" and "limit", and none of them a stop.
"""

import sysconfig
from pathlib import Path

import pytest

from segue import api
from segue.agents.ending import Channel, Ending, Source

LIBRARY = Path(sysconfig.get_paths()["stdlib"])
HERE = Path(__file__).parents[4]
SAMPLE = 400
TAIL_LINES = 100


def tails() -> list[tuple[str, str]]:
    sources = sorted(f for f in LIBRARY.rglob("*.py") if "site-packages" not in f.parts)
    step = max(1, len(sources) // SAMPLE)
    texts = [f for f in HERE.rglob("*.md") if not {".venv", "data"} & set(f.parts)]
    chosen = [
        *sources[::step],
        *texts,
        *(HERE / "src").rglob("*.toml"),
        *sorted(HERE.glob("tests/**/*.py"))[::3],  # they are much alike
    ]
    return [
        (str(file.name), "\n".join(file.read_text("utf-8", "replace").splitlines()[-TAIL_LINES:]))
        for file in chosen
    ]


@pytest.mark.parametrize("channel", ["tui", "stdout", "log", "transcript-record"])
def test_ordinary_files_are_not_a_reason_to_resume(channel: Channel) -> None:
    texts = tails()
    assert len(texts) > SAMPLE / 2
    resumed = []
    called = 0
    for name, text in texts:
        stop = api.examine(Ending(sources=(Source(text=text, channel=channel),)), now=0.0).stop
        called += stop.reason.value != "unknown"
        if stop.resume != "none":
            resumed.append((name, stop.reason.value, stop.evidence[:1]))
    assert len(resumed) <= len(texts) // 200, resumed
    assert called <= len(texts) // 40
