"""OpenTelemetry: spans and metrics over OTLP/HTTP, if the user set it up; otherwise nothing."""
