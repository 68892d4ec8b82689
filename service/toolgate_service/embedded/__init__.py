"""The gateway inside another program's process: without a port, with one agent and one local user."""

from toolgate_service.embedded.lifecycle import open_embedded

__all__ = ["open_embedded"]
