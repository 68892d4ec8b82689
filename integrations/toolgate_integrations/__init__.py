"""Plugins for agent frameworks."""
