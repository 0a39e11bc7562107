"""One table says everything that follows from a reason; no other place repeats it."""

import ast
from pathlib import Path

import pytest
from support.paths import ROOT

import segue
from segue.core.stops.reasons import TABLE, StopReason, of_nature

PACKAGE = Path(segue.__file__).parent
EXIT_CODES = {0, 1, 3, 75, 124, 130}


def test_the_table_has_every_reason_in_the_order_of_priority() -> None:
    assert list(TABLE) == list(StopReason)
    assert [reason.priority for reason in TABLE] == list(range(len(TABLE)))


@pytest.mark.parametrize("reason", StopReason)
def test_every_reason_says_what_follows(reason: StopReason) -> None:
    facts = reason.facts
    assert facts.description
    assert facts.remedy.endswith(".")
    assert facts.exit_code in EXIT_CODES
    assert (facts.resume != "none") == reason.should_auto_resume
    if reason.should_auto_resume:
        assert facts.why, "a session is begun after it, which must be told why"
    if facts.resume == "same_session":
        assert facts.why_again, "the session is resumed after it, and must be told why"
        assert facts.nature in ("passing", "broken")


def test_every_reason_is_in_the_docs() -> None:
    for page in ("README.md", "docs/classify.md"):
        text = (ROOT / page).read_text()
        assert [reason for reason in StopReason if f"`{reason.value}`" not in text] == []


def test_no_other_place_has_a_table_by_reason() -> None:
    """A dictionary with most of the reasons for keys is a second table."""
    found = []
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Dict):
                keys = [
                    key.attr
                    for key in node.keys
                    if isinstance(key, ast.Attribute)
                    and isinstance(key.value, ast.Name)
                    and key.value.id == "StopReason"
                ]
                if len(keys) > len(StopReason) // 3:
                    found.append(f"{file.relative_to(PACKAGE).as_posix()}:{node.lineno}")
    evidence = ("core/stops/confidence.py", "core/stops/codes.py", "core/stops/composition.py")
    allowed = ("core/stops/reasons.py", *evidence)
    assert [place for place in found if not place.startswith(allowed)] == [], (
        "what follows from a reason belongs into core/stops/reasons.py"
    )


def test_natures_part_the_reasons() -> None:
    natures = ("done", "passing", "full", "account", "final", "broken", "user")
    parts = [of_nature(nature) for nature in natures]  # type: ignore[arg-type]
    assert sorted(reason for part in parts for reason in part) == sorted(StopReason)
