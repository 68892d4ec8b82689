"""Error of a mapping from which no access evaluation can be constructed."""

from __future__ import annotations

__all__ = ["MappingError"]


class MappingError(Exception):
    """Raised if no access evaluation can be constructed for an MCP request; the request must not run.

    The message is the reason. It contains the texts of expressions, but no values of the request or the token.
    """
