"""HTTP client that sends requests to the gateway, with retries and a circuit breaker; only this package uses httpx."""
