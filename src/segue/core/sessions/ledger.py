"""The ledger of a session file: every request with its tokens, the basis of totals, growth and
costs.

A ledger is one flat array of whole numbers, eight per request, because a history has hundreds of
thousands of requests: the array is stored in the index unchanged, and summed without creating
objects.

A reply is often written more than once (one record per content block, or a copy in a forked or
resumed session), so rows have a key. Of several rows with the same key only one counts: the main
thread's before a sub-agent's, then the larger one, then the first. ccusage decides in the same
way, so totals can be compared to the token.
"""

from array import array
from collections.abc import Iterator
from struct import Struct as Packed

from msgspec import Struct

from segue.core.sessions.spend import Spend

WIDTH = 8
_KINDS = 4  # tokens, from the fourth number on; the last one is a part of the fourth
SIDE, ENDS_TURN = 1, 2
"""Flags: a sub-agent's request; a reply after which it is the user's turn."""

_ROW = Packed(f"={WIDTH}q")
ROW_BYTES = WIDTH * 8
_MAX_TOKENS = 1 << 40  # more is not a count of tokens, and sums would overflow


class Entry(Struct, frozen=True):
    """One request of a ledger, as an object."""

    key: int
    at: float | None
    model: str
    flags: int
    spend: Spend

    @property
    def is_side(self) -> bool:
        """Whether a sub-agent sent it."""
        return bool(self.flags & SIDE)


class Ledger:
    """The requests of one file, in its order. Adding is the only change."""

    def __init__(self, data: bytes = b"", models: list[str] | None = None) -> None:
        self.rows = array("q")
        self.rows.frombytes(data[: len(data) // ROW_BYTES * ROW_BYTES])
        self.models: list[str] = models if models is not None else []
        self._numbers = {name: number for number, name in enumerate(self.models)}
        keys = self.rows[::WIDTH]
        self._places = {key: place for place, key in enumerate(keys) if key}

    def __len__(self) -> int:
        return len(self.rows) // WIDTH

    def tobytes(self) -> bytes:
        """The bytes as the index stores them; `Ledger(data, models)` is the inverse."""
        return self.rows.tobytes()

    def keys(self, first: int = 0) -> "array[int]":
        """The keys of all rows from this one on; 0 for a request that has none."""
        return self.rows[first * WIDTH :: WIDTH]

    def add(
        self,
        key: int,
        at_ms: int,
        model: str,
        flags: int,
        input_tokens: int,
        output_tokens: int,
        cache_read_tokens: int,
        cache_write_tokens: int,
        hour_write_tokens: int = 0,
    ) -> bool:
        """Adds a request. Returns False if a request with this key was there already (the one that
        counts is kept), or if the numbers are too large to be tokens. `key` is 0 for a request that
        cannot be distinguished from others: it always counts.
        """
        total = input_tokens + output_tokens + cache_read_tokens + cache_write_tokens
        if total > _MAX_TOKENS:
            return False
        number = self._numbers.get(model)
        if number is None:
            number = self._numbers[model] = len(self.models)
            self.models.append(model)
        rows = self.rows
        end = len(rows) // WIDTH
        place = self._places.setdefault(key, end) if key else end
        if place == end:
            row = _ROW.pack(  # and `frombytes`: in half the time of `extend`
                key,
                at_ms,
                number << 8 | flags,
                input_tokens,
                output_tokens,
                cache_read_tokens,
                cache_write_tokens,
                hour_write_tokens,
            )
            rows.frombytes(row)
            return True
        start = place * WIDTH
        old = rows[start + 2]
        old_total = sum(rows[start + 3 : start + 3 + _KINDS])
        if (flags & SIDE, -total) < (old & SIDE, -old_total):
            rows[start + 2] = number << 8 | flags | old & ENDS_TURN
            rows[start + 3] = input_tokens
            rows[start + 4] = output_tokens
            rows[start + 5] = cache_read_tokens
            rows[start + 6] = cache_write_tokens
            rows[start + 7] = hour_write_tokens
        else:
            rows[start + 2] |= flags & ENDS_TURN
        return False

    def end_turn(self) -> None:
        """Marks the last request as the last of its turn."""
        if self.rows:
            self.rows[-WIDTH + 2] |= ENDS_TURN

    def entry(self, place: int) -> Entry:
        """The request at an index."""
        key, at_ms, tag, *spent = self.rows[place * WIDTH : place * WIDTH + WIDTH]
        return Entry(
            key,
            at_ms / 1000 if at_ms else None,
            self._model(tag >> 8),
            tag & 0xFF,
            _spend(*spent),
        )

    def _model(self, number: int) -> str:
        return self.models[number] if 0 <= number < len(self.models) else ""

    def find(self, key: int) -> Entry | None:
        """The request with this key; None if there is none."""
        place = self._places.get(key)
        return None if place is None else self.entry(place)

    def __iter__(self) -> Iterator[Entry]:
        return map(self.entry, range(len(self)))

    def adopt(self, parent: "Ledger") -> int:
        """For a file that begins with a copy of another file's requests: gives each leading row
        with the same tokens as the parent's row the key of that row. Returns how many there are."""
        same = 0
        mine, theirs = self.rows, parent.rows
        for start in range(0, min(len(mine), len(theirs)), WIDTH):
            if mine[start + 3 : start + 3 + _KINDS] != theirs[start + 3 : start + 3 + _KINDS]:
                break
            self._places.pop(mine[start], None)
            mine[start] = theirs[start]
            self._places[mine[start]] = same
            same += 1
        return same

    def totals(self) -> dict[str, Spend]:
        """Tokens by model, without models that used none."""
        rows = self.rows
        sums: dict[int, list[int]] = {}
        tags = {tag >> 8 for tag in rows[2::WIDTH]}
        if len(tags) == 1:  # like most files: summed without a loop
            sums[tags.pop()] = [sum(rows[column::WIDTH]) for column in range(3, WIDTH)]
        else:
            for start in range(0, len(rows), WIDTH):
                found = sums.setdefault(rows[start + 2] >> 8, [0, 0, 0, 0, 0])
                found[0] += rows[start + 3]
                found[1] += rows[start + 4]
                found[2] += rows[start + 5]
                found[3] += rows[start + 6]
                found[4] += rows[start + 7]
        return {self._model(number): _spend(*spent) for number, spent in sums.items() if any(spent)}


def _spend(given: int, output: int, read: int, written: int, for_an_hour: int) -> Spend:
    return Spend(
        input_tokens=given,
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=written,
        hour_write_tokens=for_an_hour,
    )
