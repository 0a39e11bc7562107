"""docs/machines.md is made from the tables, and is as new as they are."""

import runpy

from support.paths import ROOT


def test_the_diagrams_show_the_tables_as_they_are() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "diagrams"))
    assert (ROOT / "docs" / "machines.md").read_text() == made["page"](), "run scripts/diagrams"
