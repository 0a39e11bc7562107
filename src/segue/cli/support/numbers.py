"""Types for options that are numbers. Help and errors describe the allowed range in words; click
would write [x>=1]."""

from typing import Any

import click


class Whole(click.IntRange):
    """A whole number in a range."""

    name = "n"
    kind = "a whole number"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return _converted(super().convert, self, value, param, ctx)

    def _describe_range(self) -> str:
        return _range(self)


class Decimal(click.FloatRange):
    """A number in a range."""

    name = "x"
    kind = "a number"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        return _converted(super().convert, self, value, param, ctx)

    def _describe_range(self) -> str:
        return _range(self)


def _converted(convert: Any, kind: Whole | Decimal, value: Any, param: Any, ctx: Any) -> Any:
    try:
        return convert(value, param, ctx)
    except click.BadParameter:
        limits = _range(kind)
        of = " of " if limits.startswith("at") else " "
        allowed = f"{kind.kind}{of}{limits}".rstrip()
        raise click.BadParameter(f"must be {allowed}, not {value}", ctx, param) from None


def _range(kind: Whole | Decimal) -> str:
    low, high = kind.min, kind.max
    if low is not None and high is not None:
        return f"from {low:,} to {high:,}"
    if low is None:
        return ""
    return f"above {low:,}" if kind.min_open else f"at least {low:,}"
