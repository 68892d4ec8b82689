"""Making calls to real gateways an error while tests run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from toolgate.wire.barrier import set_barrier

__all__ = ["Block"]

_CURE: Final = (
    "use the fixture fake_gateway, or FakeGateway().guard(), or FakeGateway().replacing(guard); "
    "where the call is meant, mark the test with @pytest.mark.toolgate_block_network(False)"
)


class Block:
    """Stands before the network from `begin` to `end`.

    Args:
        blocks: Whether anything is stopped; one that stops nothing lifts another's word.
    """

    def __init__(self, *, blocks: bool = True) -> None:
        self._blocks = blocks
        self._before: Callable[[str], None] | None = None
        self._called: list[str] = []

    def begin(self) -> None:
        """Stand there."""
        self._before = set_barrier(self._stop if self._blocks else None)

    def end(self) -> None:
        """Give the place back to whoever stood there before."""
        set_barrier(self._before)

    def demand_none(self) -> None:
        """Fail the test if anything was stopped.

        Raises:
            Failed: Something was.
        """
        if self._called:
            pytest.fail(_told(self._called[0]), pytrace=False)

    def _stop(self, url: str) -> None:
        self._called.append(url)
        # No Exception: code that copes with a gateway that is away must not swallow it.
        pytest.fail(_told(url))


def _told(url: str) -> str:
    return f"a real Toolgate gateway was called: {url!r}, which toolgate_block_network forbids; {_CURE}"
