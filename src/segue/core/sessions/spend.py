"""Tokens by kind: of one reply, or added up over a history."""

from msgspec import Struct


class Spend(Struct, frozen=True, kw_only=True):
    """Disjoint parts, as Anthropic reports them: `input_tokens` is only the uncached part of the
    prompt. The parsers of agents that report otherwise convert to this form."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    hour_write_tokens: int = 0
    """The part of `cache_write_tokens` that is cached for an hour, which costs more."""

    @property
    def total_tokens(self) -> int:
        """All kinds together. For one reply: what it occupies of the window."""
        return (
            self.input_tokens
            + self.output_tokens
            + self.cache_read_tokens
            + self.cache_write_tokens
        )

    @property
    def four(self) -> tuple[int, int, int, int]:
        """Input, output, cache read, cache write."""
        return (
            self.input_tokens,
            self.output_tokens,
            self.cache_read_tokens,
            self.cache_write_tokens,
        )

    @property
    def five(self) -> tuple[int, int, int, int, int]:
        """`four`, and the part that is cached for an hour, in the order of a ledger."""
        return (*self.four, self.hour_write_tokens)

    def __sub__(self, other: "Spend") -> "Spend":
        """The difference to `other`, an earlier state."""
        return Spend(
            input_tokens=self.input_tokens - other.input_tokens,
            output_tokens=self.output_tokens - other.output_tokens,
            cache_read_tokens=self.cache_read_tokens - other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens - other.cache_write_tokens,
            hour_write_tokens=self.hour_write_tokens - other.hour_write_tokens,
        )

    def __add__(self, other: "Spend") -> "Spend":
        return Spend(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            hour_write_tokens=self.hour_write_tokens + other.hour_write_tokens,
        )


def split_prompt(
    prompt_tokens: int, cached_tokens: int, output_tokens: int, written_tokens: int = 0
) -> Spend:
    """The spend of a reply whose provider counts the cached part as part of the prompt."""
    cached = min(cached_tokens, prompt_tokens)
    written = min(written_tokens, prompt_tokens - cached)
    return Spend(
        input_tokens=prompt_tokens - cached - written,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        output_tokens=output_tokens,
    )
