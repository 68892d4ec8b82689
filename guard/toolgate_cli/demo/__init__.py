"""``toolgate demo``: the gateway, a real agent, a person who approves, and what came of it."""

from toolgate_cli.demo.command import demo

__all__ = ["demo"]
