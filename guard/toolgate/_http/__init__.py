"""HTTP client of the gateway: operations, retries, circuit breaker, and the only code that uses httpx."""
