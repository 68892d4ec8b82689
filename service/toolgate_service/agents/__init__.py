"""Agents of an organization and the API keys that belong to single agents."""
