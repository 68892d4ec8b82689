"""Guarded calls while the interpreter shuts down.

Three phases matter: exit handlers run (threads work); all exit handlers have run (a thread would be
stopped before it has sent anything); finalization (imports fail, and starting a thread blocks for ever).
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable

from toolgate.errors import GatewayUnavailable

__all__ = ["are_handlers_done", "ensure_not_finalizing"]

_done = False


def are_handlers_done() -> bool:
    """Return whether this module's exit handler has run, so that no background thread sends entries any more."""
    return _done


def ensure_not_finalizing(is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
    """Refuse a call that begins during finalization.

    Raises:
        GatewayUnavailable: The interpreter is finalizing. The tool does not run, with `fail_open` neither.
    """
    if is_finalizing():
        raise GatewayUnavailable(
            "the interpreter is shutting down, so that the gateway cannot be asked; make the call before the "
            "program ends, for example in an atexit handler and not in __del__"
        )


@atexit.register
def _send_rest() -> None:
    """Send the log entries of calls in exit handlers.

    Exit handlers run in reverse order: the recorder's own handler, which the first call registers, runs earlier, or
    not at all if an exit handler makes that call.
    """
    global _done  # noqa: PLW0603 - once in the process
    _done = True
    if (recorder := sys.modules.get("toolgate._outbox.recorder")) is not None:
        recorder.close_all()
