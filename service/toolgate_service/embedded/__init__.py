"""The gateway inside another program's process: no port, one agent, one person."""

from toolgate_service.embedded.opening import open_embedded

__all__ = ["open_embedded"]
