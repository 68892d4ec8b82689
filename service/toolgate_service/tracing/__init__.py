"""What the gateway does, told to OpenTelemetry as spans of the trace that its caller began."""
