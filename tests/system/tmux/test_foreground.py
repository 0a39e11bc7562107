"""A terminal that was lent to a full-screen program is as before, however the program ended."""

import os
import sys
from pathlib import Path

import pytest
from support.terminals.outside import outside

ON = r"\033[?1049h\033[?2004h\033[?1002h\033[?1006h\033[?1004h"
LEND = """
import os, sys
from segue.system.tmux.foreground import lend
sys.exit(lend(["sh", "-c", sys.argv[1]], os.environ).code)
"""


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        (r"printf '\033[?1049l'", 0),  # as tmux does if it is left while it redraws
        ("exit 3", 3),
        ("kill -9 $$", 247),
    ],
)
def test_a_program_that_leaves_its_modes_on_leaves_the_terminal_as_before(
    ends: str, code: int, tmp_path: Path
) -> None:
    with outside(dict(os.environ), str(tmp_path)) as terminal:
        command = terminal.run(sys.executable, "-c", LEND, f"printf '{ON}'; {ends}")
        assert command.wait() == code
        assert b"\x1b[?2004h" in command.sent
        terminal.until(lambda: terminal.is_as_before, "the terminal as before")


def test_a_program_that_left_its_screen_finds_the_cursor_where_it_left_it(tmp_path: Path) -> None:
    """Leaving it again, and setting the region that scrolls, would move the cursor."""
    with outside(dict(os.environ), str(tmp_path)) as terminal:
        command = terminal.run(sys.executable, "-c", LEND, f"printf '{ON}\\033[?1049l'")
        assert command.wait() == 0
        after = command.sent.partition(b"\x1b[?1049l")[2]
        assert b"\x1b[?1049l" not in after
        assert b"\x1b[r" not in after
