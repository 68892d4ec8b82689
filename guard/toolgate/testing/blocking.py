"""Test failures for calls to real gateways, and for guards that are not set up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from toolgate._http.transport import set_request_hook
from toolgate.setup_errors import set_setup_error_listener

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
        self._listened: Callable[[Exception], None] | None = None
        self._called: list[str] = []
        self._setup_errors: list[str] = []

    def begin(self) -> None:
        """Stand there."""
        self._before = set_request_hook(self._stop if self._blocks else None)
        self._listened = set_setup_error_listener(self._note_setup_error if self._blocks else None)

    def end(self) -> None:
        """Give the place back to whoever stood there before."""
        set_request_hook(self._before)
        set_setup_error_listener(self._listened)

    def demand_none(self) -> None:
        """Fail the test if a request was stopped, or if a guard could not decide because of its settings.

        Raises:
            Failed: With the address, or the setup error and its cure.
        """
        if self._called:
            pytest.fail(_told(self._called[0]), pytrace=False)
        if self._setup_errors:
            pytest.fail(
                f"a Toolgate guard was used without a working configuration: {self._setup_errors[0]}; {_CURE}",
                pytrace=False,
            )

    def _note_setup_error(self, error: Exception) -> None:
        self._setup_errors.append(str(error))

    def _stop(self, url: str) -> None:
        self._called.append(url)
        # No Exception: code that copes with a gateway that is away must not swallow it.
        pytest.fail(_told(url))


def _told(url: str) -> str:
    return f"a real Toolgate gateway was called: {url!r}, which toolgate_block_network forbids; {_CURE}"
