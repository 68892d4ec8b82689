"""Closing embedded gateways when the interpreter ends and nobody has closed them."""

from __future__ import annotations

import threading
import weakref
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolgate.runtime import Runtime

__all__ = ["close_at_exit"]

_open: weakref.WeakSet[Runtime] = weakref.WeakSet()
_registered = False


def close_at_exit(runtime: Runtime) -> None:
    """Close `runtime`, with what it still has to deliver, before the interpreter ends."""
    global _registered  # noqa: PLW0603 - once in the process
    if not _registered:
        _registered = True
        # Not atexit: by then the thread that writes the log takes nothing any more, as no thread pool does.
        threading._register_atexit(_close_all)  # type: ignore[attr-defined]  # noqa: SLF001 - as concurrent.futures does
    _open.add(runtime)


def _close_all() -> None:
    with ExitStack() as each:
        for runtime in list(_open):
            each.callback(runtime.close_at_exit)
