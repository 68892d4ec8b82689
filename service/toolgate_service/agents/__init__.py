"""Agents: who acts."""
