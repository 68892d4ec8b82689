"""Grants: temporary approvals, each of which allows further calls until it expires or has no uses left."""
