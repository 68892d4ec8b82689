"""Checks: decisions about tool calls."""
