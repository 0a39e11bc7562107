"""Codes of model providers, as they appear in agents' records and error messages.

Codes that say nothing (invalid_request_error, INVALID_ARGUMENT) are left out on purpose: the
message decides there.
"""

from segue.core.stops.reasons import StopReason

_CODES = {
    StopReason.RATE_LIMIT: "rate_limit_error rate_limit_exceeded usage_limit_reached"
    " RESOURCE_EXHAUSTED",
    StopReason.CONTEXT_EXHAUSTED: "context_length_exceeded",
    StopReason.BILLING: "insufficient_quota billing_error",
    StopReason.AUTH: "authentication_error permission_error invalid_api_key API_KEY_INVALID"
    " UNAUTHENTICATED PERMISSION_DENIED",
    StopReason.OVERLOADED: "overloaded_error api_error server_error server_is_overloaded"
    " UNAVAILABLE INTERNAL",
    StopReason.TIMEOUT: "timeout_error DEADLINE_EXCEEDED",
}

PROVIDER_CODES: dict[str, StopReason] = {
    code: reason for reason, codes in _CODES.items() for code in codes.split()
}
