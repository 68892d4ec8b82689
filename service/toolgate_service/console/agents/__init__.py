"""Agents and what they may do: looked at, created, changed and switched off."""
