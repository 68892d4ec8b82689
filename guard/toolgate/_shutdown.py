"""Rules for guarded calls that are made while the interpreter shuts down.

The shutdown has three phases. First, exit handlers (`atexit`) run: threads still work, and the SDK sends checks and log
entries as usual. Second, all exit handlers have run: a background thread would be stopped before it can send an entry.
A call therefore sends its own log entry before it returns, until the exit timeout of the outbox has passed. Third,
the interpreter finalizes: imports fail, and starting a thread blocks for ever. Calls then raise `GatewayUnavailable`.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable

from toolgate.errors import GatewayUnavailable

__all__ = ["are_handlers_done", "ensure_not_finalizing"]

_done = False


def are_handlers_done() -> bool:
    """Return True if this module's exit handler has run; after that, no background thread can send log entries."""
    return _done


def ensure_not_finalizing(
    is_finalizing: Callable[[], bool] = sys.is_finalizing,
    # The class is a default value, because module globals may be None while the interpreter is finalizing.
    unavailable: type[GatewayUnavailable] = GatewayUnavailable,
) -> None:
    """Raise an error if the interpreter is finalizing, because no check can be sent any more.

    Raises:
        GatewayUnavailable: The interpreter is finalizing. The tool does not run, not even with `fail_open`.
    """
    if is_finalizing():
        raise unavailable(
            "the interpreter is shutting down, so that the gateway cannot be asked; make the call before the "
            "program ends, for example in an atexit handler and not in __del__"
        )


@atexit.register
def _send_rest() -> None:
    """Send the log entries of guarded calls that other exit handlers made.

    Exit handlers run in the reverse order of their registration. This handler is registered at import, so it runs after
    the outbox's own handler, which is registered at the first call. If an exit handler makes that first call, the
    outbox's handler does not run at all, and only this handler sends the log entries.
    """
    global _done  # noqa: PLW0603 - once in the process
    _done = True
    if (recorder := sys.modules.get("toolgate._outbox.recorder")) is not None:
        recorder.close_all()
