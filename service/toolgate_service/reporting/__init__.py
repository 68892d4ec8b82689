"""What the gateway tells its operator: lines on standard error, each with the request that caused it."""
