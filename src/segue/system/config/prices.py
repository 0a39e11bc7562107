"""Token prices and windows from the list that comes with genai-prices; nothing is fetched.

Loading it is slow (a quarter of a second), so it is imported only for a cost or an unknown
model. Runs need the prices of the same few models again and again: they are kept beside segue's
state, for as long as the installed list stays the same.
"""

import json
import os
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from segue.core.sessions.spend import Spend
from segue.system.files import state

KEPT_NAME = "prices.json"
_MAX_KEPT = 200  # models
_MAX_BYTES = 200_000

_PROVIDERS = {
    "google": "gcp.gemini", "aws": "aws.bedrock", "azure": "azure.ai.openai",
    "mistral": "mistral_ai", "x-ai": "x_ai",
}  # fmt: skip


def cost_usd(model: str, spend: Spend) -> Decimal | None:
    """The cost of these tokens at the API's list price; None if the model is not on the list, which
    is not the same as no cost. `spend` may be the sum of any number of requests, so surcharges for
    one very long request are not included."""
    rates = _rates(model) if model else None
    if rates is None:
        return None
    given, output, read, written, for_an_hour = spend.five
    kinds = (given, output, read, written - for_an_hour, for_an_hour)
    return sum((rate * tokens for rate, tokens in zip(rates, kinds, strict=True)), start=Decimal(0))


def keep(models: list[str]) -> None:
    """Stores the prices of these models for the next process; never raises. Prices that depend on
    the date or the hour are looked up each time."""
    stamp = _list_stamp()
    known = _stored_rates(stamp)
    new = {model: _from_list(model) for model in models if model and model not in known}
    found = {model: entry[0] for model, entry in new.items() if entry[1]}
    if not stamp or not found or len(known) + len(found) > _MAX_KEPT:
        return
    rates = {m: r and [str(each) for each in r] for m, r in (known | found).items()}
    place = os.path.join(state.state_folder(), KEPT_NAME)
    aside = f"{place}.{os.getpid()}.new"
    with suppress(OSError):
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"list": stamp, "rates": rates}, file)
        os.replace(aside, place)


Rates = tuple[Decimal, ...]


def _rates(model: str) -> Rates | None:
    """The price of one token: input, output, cache read, cache write for five minutes and for an
    hour."""
    stored = _stored_rates(_list_stamp())
    return stored[model] if model in stored else _from_list(model)[0]


@lru_cache(maxsize=1)
def _list_stamp() -> str:
    """Which list is installed, without loading it; "" if unknown."""
    with suppress(ImportError, ValueError, OSError):
        spec = find_spec("genai_prices")
        for folder in (spec and spec.submodule_search_locations) or ():
            found = os.stat(os.path.join(folder, "data.py"))
            return f"{found.st_size}-{found.st_mtime_ns}"
    return ""


def _stored_rates(stamp: str) -> dict[str, Rates | None]:
    """The stored prices by model; None for a model without a price."""
    try:
        place = os.path.join(state.state_folder(), KEPT_NAME)
        changed = os.stat(place)
    except OSError:
        return {}
    return _read_rates(place, (changed.st_ino, changed.st_mtime_ns), stamp)


@lru_cache(maxsize=2)
def _read_rates(place: str, changed: tuple[int, int], stamp: str) -> dict[str, Rates | None]:
    try:
        with open(place, encoding="utf-8") as file:
            decoded: Any = json.loads(file.read(_MAX_BYTES))
        if not stamp or decoded["list"] != stamp:
            return {}
        return {str(model): _five(rates) for model, rates in decoded["rates"].items()}
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return {}


def _five(rates: Any) -> Rates | None:
    if rates is None:
        return None
    try:
        given, output, read, written, for_an_hour = (Decimal(str(each)) for each in rates)
    except InvalidOperation as fault:
        raise ValueError from fault
    return given, output, read, written, for_an_hour


@lru_cache(maxsize=1_000)
def _from_list(model: str) -> tuple[Rates | None, bool]:
    """The same, and whether it is constant. Asks for few tokens at a time: the list prices many
    tokens as one request."""
    from genai_prices import Usage, calc_price

    few = 1_000
    kinds = (
        Usage(input_tokens=few),
        Usage(output_tokens=few),
        Usage(input_tokens=few, cache_read_tokens=few),
        Usage(input_tokens=few, cache_write_tokens=few),
        Usage(input_tokens=few, cache_write_tokens=few, cache_write_1h_tokens=few),
    )
    try:
        found = [calc_price(usage, model_ref=model) for usage in kinds]
    except (LookupError, ValueError):
        return None, True
    given, output, read, written, for_an_hour = (each.total_price / few for each in found)
    if given < for_an_hour == written:
        # The list has a price for a cache write but none for an hour: twice the input price, by the
        # rule of Anthropic, the only provider that sells it.
        for_an_hour = 2 * given
    is_fixed = not isinstance(found[0].model.prices, list)
    return (given, output, read, written, for_an_hour), is_fixed


def window_tokens(model: str) -> int | None:
    """The model's window according to the list; None if the model is not on it."""
    from genai_prices import Usage, calc_price

    try:
        return calc_price(Usage(), model_ref=model).model.context_window
    except (LookupError, ValueError):
        return None


def provider(model: str) -> str:
    """The model's provider according to the list, named as in OpenTelemetry's conventions; "" if
    the model is not on it."""
    from genai_prices import Usage, calc_price

    try:
        found = calc_price(Usage(), model_ref=model).provider.id
    except (LookupError, ValueError):
        return ""
    return _PROVIDERS.get(found, found)
