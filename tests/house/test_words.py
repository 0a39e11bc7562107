"""Comments and docs speak only of the product."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "segue"
_ELSEWHERE = re.compile(r"\b[Ss]eeds? 00\d|\bseeds'|\bADR\b|\bAC ?\d|[Dd]esign rule|\(rule \d+\)")
"""What only those know who planned the work."""


def test_nothing_cites_what_is_not_in_the_docs() -> None:
    pages = [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.toml"), *(ROOT / "docs").glob("*.md")]
    found = {
        f"{file.relative_to(ROOT)}:{number}"
        for file in pages
        for number, line in enumerate(file.read_text().split("\n"), 1)
        if _ELSEWHERE.search(line)
    }
    assert not found
