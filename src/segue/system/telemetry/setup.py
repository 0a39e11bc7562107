"""Whether the user wants telemetry, and where. Cheap: loads nothing to find out."""

import os
from collections.abc import Mapping

from segue.system.config import config
from segue.system.telemetry.types import Endpoint

_ENDPOINTS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)


def endpoint(env: Mapping[str, str]) -> Endpoint | None:
    """None: telemetry is off, which is the default unless `[otel]` or one of the OTEL_* variables
    names a target. Raises ConfigError if `[otel]` is invalid."""
    settings = config.otel()
    variables = {key for key in _ENDPOINTS if env.get(key)}
    if settings.enabled is False or env.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if not (settings.endpoint or settings.enabled or variables):
        return None
    is_asked = bool(settings.endpoint or settings.enabled)
    is_general = is_asked or _ENDPOINTS[0] in variables
    return Endpoint(
        url=settings.endpoint,
        headers=dict(settings.headers or {}),
        traces=(is_general or _ENDPOINTS[1] in variables) and _wants("TRACES", env),
        metrics=(is_general or _ENDPOINTS[2] in variables) and _wants("METRICS", env),
        is_asked=is_asked,
    )


def _wants(signal: str, env: Mapping[str, str]) -> bool:
    named = env.get(f"OTEL_{signal}_EXPORTER", "otlp")
    return "otlp" in named.split(",")


def is_installed() -> bool:
    """Whether the extra `otel` is installed."""
    from importlib.util import find_spec

    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def interval_s(env: Mapping[str, str] | None = None) -> float:
    """How often metrics are sent: OTEL_METRIC_EXPORT_INTERVAL in milliseconds, by default a
    minute."""
    value = (os.environ if env is None else env).get("OTEL_METRIC_EXPORT_INTERVAL", "")
    try:
        return max(1.0, float(value) / 1_000)
    except ValueError:
        return 60.0
