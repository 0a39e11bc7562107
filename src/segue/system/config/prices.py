"""What tokens cost, and windows, by the list that genai-prices brings along: nothing is fetched.

Slow to load (a quarter of a second): imported only when a cost or an unknown model is asked for.
"""

from decimal import Decimal

from segue.core.sessions.spend import Spend

_PROVIDERS = {
    "google": "gcp.gemini", "aws": "aws.bedrock", "azure": "azure.ai.openai",
    "mistral": "mistral_ai", "x-ai": "x_ai",
}  # fmt: skip


def cost_usd(model: str, spend: Spend) -> Decimal | None:
    """What these tokens cost at the API's list price; None if the model is not on the list, which
    is not the same as nothing."""
    from genai_prices import Usage, calc_price

    if not model:
        return None
    usage = Usage(
        input_tokens=spend.input_tokens + spend.cache_read_tokens + spend.cache_write_tokens,
        output_tokens=spend.output_tokens,
        cache_read_tokens=spend.cache_read_tokens,
        cache_write_tokens=spend.cache_write_tokens,
    )
    try:
        return calc_price(usage, model_ref=model).total_price
    except (LookupError, ValueError):
        return None


def window_tokens(model: str) -> int | None:
    """The model's window by the list; None if it is not there."""
    from genai_prices import Usage, calc_price

    try:
        return calc_price(Usage(), model_ref=model).model.context_window
    except (LookupError, ValueError):
        return None


def provider(model: str) -> str:
    """Whose model it is by the list, as OpenTelemetry's conventions name providers; "" if it is
    not there."""
    from genai_prices import Usage, calc_price

    try:
        found = calc_price(Usage(), model_ref=model).provider.id
    except (LookupError, ValueError):
        return ""
    return _PROVIDERS.get(found, found)
