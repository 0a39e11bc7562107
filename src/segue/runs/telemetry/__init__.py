"""Reports runs to an OpenTelemetry collector."""
