"""These tests start many gateways."""

from support.compiled import compiled_once

__all__ = ["compiled_once"]
