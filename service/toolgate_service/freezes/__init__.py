"""Freezes, which deny all tool calls of an organization, an agent or an action until they are lifted."""
