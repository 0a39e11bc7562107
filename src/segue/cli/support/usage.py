"""Usage errors as one sentence each: what is wrong, and what was probably meant."""

import re
from collections.abc import Iterable
from typing import Any

import click

from segue.cli.support.numbers import Decimal, Whole
from segue.core.nearest import did_you_mean


def sentence(fault: click.UsageError) -> str:
    """What to tell the user instead of click's own message, with a full stop or question mark."""
    text = _sentence(fault).rstrip()
    return text if text[-1:] in (".", "?", "…") else f"{text}."


def _sentence(fault: click.UsageError) -> str:
    message = fault.message
    if isinstance(fault, click.MissingParameter):
        return _missing(fault)
    if isinstance(fault, click.BadParameter) and fault.param is not None:
        return _bad_value(fault, fault.param)
    if isinstance(fault, click.NoSuchOption):
        return _with_hint(f"unknown option {fault.option_name}", fault.option_name, _options(fault))
    if found := re.fullmatch(r"No such command '(.*?)'\.(?: .*)?", message, re.S):
        group = fault.ctx.command if fault.ctx else None
        known = (
            group.list_commands(fault.ctx) if isinstance(group, click.Group) and fault.ctx else []
        )
        return _with_hint(f"unknown command {found[1]!r}", found[1], known)
    if found := re.fullmatch(r"Option '(.*?)' requires an argument\.", message):
        return f"{found[1]} needs a value"
    if found := re.fullmatch(r"Option '(.*?)' does not take a value\.", message):
        return f"{found[1]} takes no value"
    if found := re.fullmatch(r"Got unexpected extra arguments? \((.*)\)", message, re.S):
        return f"unexpected argument: {found[1]}"
    return fault.format_message()


def _missing(fault: click.MissingParameter) -> str:
    param = fault.param
    if param is None:
        return fault.format_message()
    if isinstance(param.type, click.Choice):
        return f"{_subject(param)}choose {_among(param.type)}"
    name = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name
    return f"{name.removesuffix('...')} is missing"


def _bad_value(fault: click.BadParameter, param: click.Parameter) -> str:
    if isinstance(param.type, Whole | Decimal):
        return f"{_subject(param).replace(':', '')}{fault.message}"
    if not isinstance(param.type, click.Choice):
        return f"{_subject(param)}{fault.message}"
    given = re.match(r"'(.*)' is not ", fault.message, re.S)
    if given is None:
        return f"{_subject(param)}{fault.message}"
    wrong = f"{_subject(param)}{given[1]!r} is not a valid choice; choose {_among(param.type)}"
    return _with_hint(wrong, given[1], map(str, param.type.choices))


def _subject(param: click.Parameter) -> str:
    return f"{param.opts[0]}: " if isinstance(param, click.Option) else ""


def _among(kind: click.Choice[Any]) -> str:
    known = [str(choice) for choice in kind.choices]
    return f"{', '.join(known[:-1])} or {known[-1]}" if known[1:] else known[0]


def _options(fault: click.UsageError) -> list[str]:
    params = fault.ctx.command.params if fault.ctx else []
    return [name for param in params if isinstance(param, click.Option) for name in param.opts]


def _with_hint(wrong: str, given: str, known: Iterable[str]) -> str:
    hint = did_you_mean(given, known)
    return f"{wrong}: {hint}" if hint else wrong
