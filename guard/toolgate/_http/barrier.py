"""What stands before the network in tests: nothing, unless a test run put something there."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["before_request", "set_barrier"]

_barrier: Callable[[str], None] | None = None


def set_barrier(barrier: Callable[[str], None] | None) -> Callable[[str], None] | None:
    """Have `barrier` called with the address before each request that would go to the network.

    Returns:
        What stood there before.
    """
    global _barrier
    before, _barrier = _barrier, barrier
    return before


def before_request(url: str) -> None:
    """Call the barrier, if there is one; what it raises goes through."""
    if _barrier is not None:
        _barrier(url)
