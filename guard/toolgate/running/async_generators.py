"""As `generators`, for asynchronous ones."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeAlias

from toolgate.drivers import adrive
from toolgate.running.ending import AsyncEnding
from toolgate.running.turn import Turn

__all__ = ["afollowed", "aiterate"]

_Items: TypeAlias = AsyncGenerator[Any, Any]


def aiterate(turn: Turn) -> _Items:
    """As `iterate`."""
    return afollowed(lambda: _begun(turn))


async def afollowed(begin: Callable[[], Awaitable[tuple[_Items, AsyncEnding]]]) -> _Items:
    """As `followed`."""
    generator, ending = await begin()
    ending.counts()
    next_ones: list[Awaitable[Any]] = [_first(generator)]
    made: list[Any] = []
    closing = False
    while True:
        try:
            made.append(await next_ones.pop())
        except StopAsyncIteration:
            break
        except BaseException as error:
            if closing:
                ending.keep(None if isinstance(error, GeneratorExit) else error, closed=True)
            else:
                await ending.tell(error)
            raise
        ending.item()
        closing = False
        try:
            next_ones.append(generator.asend((yield made.pop())))
        except BaseException as error:  # noqa: BLE001 - thrown in from outside, and thrown on
            closing = isinstance(error, GeneratorExit)
            next_ones.append(generator.athrow(error))
    if closing:
        ending.keep(closed=True)
    else:
        await ending.tell()


async def _begun(turn: Turn) -> tuple[_Items, AsyncEnding]:
    flow, performer = turn.flow(), turn.async_performer()
    await adrive(flow, performer)
    ending = AsyncEnding(flow, performer)
    try:
        return turn.start(), ending
    except BaseException as error:
        await ending.tell(error)
        raise


def _first(generator: _Items) -> Awaitable[Any]:
    """Ask for the first item, and have no event loop look after the generator.

    A loop closes every generator it has seen: this one would be closed beside the one that hands it on, both at the
    same time.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, _leave)
    try:
        return generator.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)


def _leave(generator: _Items) -> None:
    """It is closed by what hands it on."""
