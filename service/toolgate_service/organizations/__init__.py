"""Organizations: the tenant, its environments and its API keys."""
