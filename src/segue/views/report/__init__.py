"""Reports for people and programs: one report, four forms."""

from collections.abc import Callable
from datetime import tzinfo

from segue.reports.types import Report
from segue.views.report import as_html, as_markdown, as_text

FORMS: dict[str, Callable[[Report, tzinfo], str]] = {
    "text": as_text.text,
    "md": as_markdown.markdown,
    "html": as_html.page,
}
"""All formats except JSON, which `shapes` makes. Their text is not safe for a terminal until
`printing.say` prints it."""
