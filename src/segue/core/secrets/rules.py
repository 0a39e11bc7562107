"""The rules for recognising secrets, loaded from the package's data and compiled once."""

import tomllib
from functools import cache
from pkgutil import get_data
from typing import Any

import re2

_MAX_MEMORY = 64 << 20  # of one automaton


@cache
def rule(pattern: bytes) -> Any:
    """An RE2 pattern over bytes, compiled when first needed. Its time is linear for any text."""
    return re2.compile(pattern, options=_options())


class WordSets:
    """Finds in one scan which of many sets of words have a word in a text, whatever its case."""

    def __init__(self, sets: list[list[str]]) -> None:
        options = _options()
        options.case_sensitive = False
        self._all = list(range(len(sets)))
        self._found = re2.Set.SearchSet(options)
        for words in sets:
            self._found.Add("|".join(map(re2.escape, words)).encode())
        self._found.Compile()

    def matches(self, data: bytes) -> list[int]:
        """The numbers of these sets, ascending; all numbers if there is not enough memory to
        tell."""
        found = self._found.Match(data)
        return self._all if found is None else sorted(found)


def _options() -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    return options


@cache
def rules(name: str) -> dict[str, Any]:
    """The content of a file of `secrets/*.toml`, which is package data. It is cached: do not
    change it."""
    return tomllib.loads((get_data("segue", f"secrets/{name}.toml") or b"").decode())
