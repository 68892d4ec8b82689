"""Take the identity along into threads that begin without it."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["carry"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def carry(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """`function`, to be called in another thread as whoever acts here and now.

    For `loop.run_in_executor`, `ThreadPoolExecutor.submit` and `threading.Thread`, which begin without any
    `acting_as` and `resume`; `asyncio.to_thread` and tasks take them along by themselves. It may be called any number
    of times, also at the same time. A process pool takes nothing along: say `acting_as` inside it.

    Args:
        function: A plain function. Of a coroutine function the call is carried, and not what awaits it.

    Returns:
        A function of the same signature.
    """
    context = contextvars.copy_context()

    @functools.wraps(function)
    def carried(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        # A copy for each call: a context is entered by one thread at a time.
        return context.copy().run(function, *args, **kwargs)

    return carried
