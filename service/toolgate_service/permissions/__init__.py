"""Permissions: the actions that an agent may perform."""
