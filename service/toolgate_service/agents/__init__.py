"""Agents and their API keys."""
