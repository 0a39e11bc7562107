"""OpenTelemetry: spans and metrics over OTLP/HTTP, where the user set it up; nothing otherwise."""
