"""Forms of lines: what remains of a line without its digits. A session's logs consist of a few
forms, so most of a long log is known before anybody looks at its lines."""

from collections.abc import KeysView, Sequence
from string import digits

FORM_SHARE = 4
"""A log has this many times more lines than forms."""
_USUAL_LINES, _USUAL_FORMS, _FORM_BYTES = 32, 1_000, 300
_DIGITS = digits.encode()


def without_digits(data: bytes) -> bytes:
    """The text without digits. Of a part of a line, this is a part of the line's form."""
    return data.translate(None, _DIGITS)


class UsualForms:
    """Forms of lines that the session's logs are full of. Another such line is not news in any
    output and need not be looked at again, which saves most of the cost of long logs."""

    def __init__(self) -> None:
        self._often: dict[bytes, int] = {}
        self._usual: set[bytes] = set()
        self._joined = b""

    def others(self, forms: KeysView[bytes]) -> set[bytes]:
        """The forms that are not usual."""
        return forms - self._usual

    def are_all_of(self, forms: Sequence[bytes]) -> bool:
        """Whether these are usual, except an empty one at the end, and so few different ones that
        the output is a log. Never wrong if true; some logs are not recognised. Counts nothing,
        which would take twice as long."""
        if (len(self._usual) + 1) * FORM_SHARE > len(forms):
            return False
        return self._usual.issuperset(forms if forms[-1] else forms[:-1])

    @property
    def has_empty(self) -> bool:
        """Whether an empty line is usual."""
        return b"" in self._usual

    @property
    def joined(self) -> bytes:
        """All usual forms in one text."""
        self._joined = self._joined or b"\n".join(self._usual)
        return self._joined

    def add(self, form: bytes, lines: int) -> None:
        """Records that an output had this many lines of a form, too many to be odd."""
        often = self._often.pop(form, 0) + lines
        if often < _USUAL_LINES:
            self._often[form] = often
        elif len(form) <= _FORM_BYTES:
            self._usual.add(form)
            self._joined = b""
        if len(self._usual) + len(self._often) > _USUAL_FORMS:
            self._often.clear()
            self._usual.clear()
            self._joined = b""
