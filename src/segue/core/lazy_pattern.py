"""Regular expressions that are compiled when they are first used.

Most commands never read an agent's plain text. Compiling the large patterns that tell code, logs
and errors apart would take a good part of what such a command needs to start.
"""

import re
from typing import Any, cast


class _LazyPattern:
    """Behaves like the compiled pattern. From the first use on, the instance has the compiled
    pattern's own methods, so a call costs the same."""

    def __init__(self, source: str, flags: int) -> None:
        self._source, self._flags = source, flags

    def __getattr__(self, name: str) -> Any:
        """Called only for what the instance does not have yet."""
        if name.startswith("_"):  # copying and the like: nothing to compile for
            raise AttributeError(name)
        found = getattr(re.compile(self._source, self._flags), name)
        self.__dict__[name] = found
        return found

    def __repr__(self) -> str:
        return f"lazy_pattern({self._source!r})"


def lazy_pattern(source: str, flags: int = 0) -> re.Pattern[str]:
    """The same as `re.compile`, later. A mistake in the pattern shows at its first use, so each
    such pattern needs a test that uses it."""
    return cast("re.Pattern[str]", _LazyPattern(source, flags))
