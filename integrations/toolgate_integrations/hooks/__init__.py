"""Coding agents that ask a command before each tool call: what they say, translated for the guard, and its answer."""

from __future__ import annotations

from toolgate_integrations.hooks.command import AGENTS, Hook, limit_of, options, parse

__all__ = ["AGENTS", "Hook", "limit_of", "options", "parse"]
