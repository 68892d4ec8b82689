"""Permissions: the actions that an agent may perform, with their limits and approval rules."""
