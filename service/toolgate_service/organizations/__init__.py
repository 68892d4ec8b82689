"""Organizations: tenants with their environments, API keys and IP allowlist."""
