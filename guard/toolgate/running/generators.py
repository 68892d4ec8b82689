"""Run a generator: checked before its first item, one log entry at its end.

Handed on by hand and not by `yield from`, which turns a `GeneratorExit` that is thrown in into a `close()`. What passes
through is not held: an item, once it is given out, belongs to whoever took it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from toolgate.drivers import drive
from toolgate.running.ending import Ending
from toolgate.running.turn import Turn

__all__ = ["followed", "iterate"]

_Items: TypeAlias = Generator[Any, Any, Any]


def iterate(turn: Turn) -> _Items:
    """The items of a generator function's call, which is asked about when the first one is."""
    return followed(lambda: _begun(turn))


def followed(begin: Callable[[], tuple[_Items, Ending]]) -> _Items:
    """Everything a generator does, and its end; `begin` is called when the first item is asked for."""
    generator, ending = begin()
    ending.counts()
    given: list[Any] = [None]
    thrown: list[BaseException] = []
    made: list[Any] = []
    value: Any = None
    while True:
        closing = bool(thrown) and isinstance(thrown[0], GeneratorExit)
        try:
            made.append(generator.throw(thrown.pop()) if thrown else generator.send(given.pop()))
        except StopIteration as end:
            value = end.value
            break
        except BaseException as error:
            if closing:
                ending.keep(None if isinstance(error, GeneratorExit) else error, closed=True)
            else:
                ending.tell(error)
            raise
        ending.item()
        try:
            given.append((yield made.pop()))
        except BaseException as error:  # noqa: BLE001 - thrown in from outside, and thrown on
            thrown.append(error)
    if closing:
        ending.keep(closed=True)
    else:
        ending.tell()
    return value


def _begun(turn: Turn) -> tuple[_Items, Ending]:
    flow, performer = turn.flow(), turn.performer()
    drive(flow, performer)
    ending = Ending(flow, performer)
    try:
        return turn.start(), ending
    except BaseException as error:
        ending.tell(error)
        raise
