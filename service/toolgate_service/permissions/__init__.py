"""Permissions: what an agent may do."""
