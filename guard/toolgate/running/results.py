"""What a plain function returns before it has run: a coroutine, a future, a generator. Followed to its end.

Recording success at the function's return would be wrong: the work is still to be done.
"""

from __future__ import annotations

import asyncio
import inspect
import opcode
import types
from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any, Final

import wrapt

from toolgate.calls import Flow
from toolgate.performers import Performer
from toolgate.running.async_generators import afollowed
from toolgate.running.ending import AsyncEnding, Ending
from toolgate.running.generators import followed
from toolgate.running.turn import Turn

__all__ = ["goes_on", "going_on"]

if TYPE_CHECKING:
    _Proxy = wrapt.ObjectProxy[Any]
else:
    _Proxy = wrapt.ObjectProxy

_UNBEGUN: Final = opcode.opmap["RETURN_GENERATOR"]


def goes_on(value: Any) -> bool:
    """Whether `value` is work that is still to be done; a generator that has begun is somebody else's."""
    if isinstance(value, types.GeneratorType):
        return inspect.getgeneratorstate(value) == inspect.GEN_CREATED
    if isinstance(value, types.AsyncGeneratorType):
        frame = value.ag_frame
        return frame is not None and frame.f_code.co_code[frame.f_lasti] == _UNBEGUN
    return hasattr(type(value), "__await__")


def going_on(value: Any, turn: Turn, flow: Flow, performer: Performer, began: float) -> Any:
    """`value`, or what stands for it, whose end will be recorded."""
    if isinstance(value, types.GeneratorType) and not _is_coroutine_of_old(value):
        ending = Ending(flow, performer, began)
        return followed(lambda: (value, ending))
    if asyncio.isfuture(value):
        kept = Ending(flow, performer, began)
        value.add_done_callback(lambda future: _done(future, kept))
        return value
    later = AsyncEnding(flow, turn.async_performer(), began)
    if isinstance(value, types.AsyncGeneratorType):
        return afollowed(lambda: _begun(value, later))
    if not isinstance(value, (types.CoroutineType, types.GeneratorType)):
        return _Awaited(value, later)
    awaited: Any = _awaited(_Unawaited(value), later)
    awaited.__name__, awaited.__qualname__ = value.__name__, value.__qualname__
    return awaited


class _Awaited(_Proxy):
    """Something to await that is more than a coroutine: everything else it can do, it does itself."""

    def __init__(self, value: Any, ending: AsyncEnding) -> None:
        super().__init__(value)
        # Of one that is never awaited nothing else is known than that it was returned.
        ending.has_run()
        self._self_ending = ending

    def __await__(self) -> Generator[Any, Any, Any]:
        return _awaited(self.__wrapped__, self._self_ending).__await__()


class _Unawaited:
    """A coroutine; dropped before anybody awaited it, one warning says so and not two."""

    def __init__(self, coroutine: Any) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        coroutine, self._coroutine = self._coroutine, None
        return (yield from (coroutine.__await__() if hasattr(coroutine, "__await__") else coroutine))

    def __del__(self) -> None:
        if self._coroutine is not None:
            self._coroutine.close()


async def _awaited(value: Awaitable[Any], ending: AsyncEnding) -> Any:
    try:
        result = await value
    except GeneratorExit as error:
        ending.keep(error)
        raise
    except BaseException as error:
        await ending.tell(error)
        raise
    await ending.tell()
    return result


def _is_coroutine_of_old(generator: types.GeneratorType[Any, Any, Any]) -> bool:
    """Whether `types.coroutine` made it: it is to be awaited."""
    return bool(generator.gi_code.co_flags & inspect.CO_ITERABLE_COROUTINE)


async def _begun(generator: Any, ending: AsyncEnding) -> tuple[Any, AsyncEnding]:
    return generator, ending


def _done(future: asyncio.Future[Any], ending: Ending) -> None:
    if future.cancelled():
        ending.keep(asyncio.CancelledError())
        return
    # Not exception(): that would say somebody has looked, and asyncio would no longer tell of one nobody looks at.
    ending.keep(getattr(future, "_exception", None))
