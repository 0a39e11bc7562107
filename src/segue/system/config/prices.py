"""Token prices and windows from the list that comes with genai-prices; nothing is fetched.

Loading it is slow (a quarter of a second), so it is imported only for a cost or an unknown
model.
"""

from decimal import Decimal
from functools import lru_cache

from segue.core.sessions.spend import Spend

_PROVIDERS = {
    "google": "gcp.gemini", "aws": "aws.bedrock", "azure": "azure.ai.openai",
    "mistral": "mistral_ai", "x-ai": "x_ai",
}  # fmt: skip


def cost_usd(model: str, spend: Spend) -> Decimal | None:
    """What these tokens cost at the API's list price; None if the model is not on the list, which
    is not the same as nothing. `spend` may be the sum of any number of requests: what some models
    ask more for, one very long request, is not in it."""
    rates = _rates(model) if model else None
    if rates is None:
        return None
    given, said, read, written, for_an_hour = spend.five
    kinds = (given, said, read, written - for_an_hour, for_an_hour)
    return sum((rate * tokens for rate, tokens in zip(rates, kinds, strict=True)), start=Decimal(0))


@lru_cache(maxsize=1_000)
def _rates(model: str) -> tuple[Decimal, ...] | None:
    """Of one token: given, said, read from the cache, written to it for five minutes and for an
    hour. Asked for few tokens at a time: the list's price of many is that of one request with so
    many."""
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
        prices = [calc_price(usage, model_ref=model).total_price for usage in kinds]
    except (LookupError, ValueError):
        return None
    given, said, read, written, for_an_hour = (price / few for price in prices)
    if given < for_an_hour == written:
        # The list has a price for writing, and none for an hour: twice the input's, by Anthropic's
        # rule, the only provider that sells that.
        for_an_hour = 2 * given
    return given, said, read, written, for_an_hour


def window_tokens(model: str) -> int | None:
    """The model's window by the list; None if it does not exist."""
    from genai_prices import Usage, calc_price

    try:
        return calc_price(Usage(), model_ref=model).model.context_window
    except (LookupError, ValueError):
        return None


def provider(model: str) -> str:
    """Whose model it is by the list, as OpenTelemetry's conventions name providers; "" if it
    does not exist."""
    from genai_prices import Usage, calc_price

    try:
        found = calc_price(Usage(), model_ref=model).provider.id
    except (LookupError, ValueError):
        return ""
    return _PROVIDERS.get(found, found)
