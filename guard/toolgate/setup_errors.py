"""Setup errors as the test plugin sees them: one listener, so that a swallowed error still fails a test."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["report_setup_error", "set_setup_error_listener"]

_listener: Callable[[Exception], None] | None = None


def set_setup_error_listener(
    listener: Callable[[Exception], None] | None,
) -> Callable[[Exception], None] | None:
    """Call `listener` with each setup error of this process; None removes it.

    Returns:
        The previous listener.
    """
    global _listener
    before, _listener = _listener, listener
    return before


def report_setup_error(error: Exception) -> None:
    """Pass an error to the listener, if there is one.

    Args:
        error: A missing or wrong setting, a refused API key, or a response that is not the gateway's.
    """
    if _listener is not None:
        _listener(error)
