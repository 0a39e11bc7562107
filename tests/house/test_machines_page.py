"""docs/machines.md is generated from the tables, and is up to date."""

import runpy

from support.paths import ROOT


def test_the_diagrams_show_the_tables_as_they_are() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "diagrams"))
    assert (ROOT / "docs" / "machines.md").read_text() == made["page"](), "run scripts/diagrams"
