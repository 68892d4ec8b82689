"""How a tool of each kind is run; loaded by the first call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from toolgate.running.async_generators import aiterate
from toolgate.running.calls import arun, run
from toolgate.running.generators import iterate
from toolgate.running.turn import Turn
from toolgate.tools import Kind

__all__ = ["RUN", "Turn"]

RUN: Final[dict[Kind, Callable[[Turn], Any]]] = {
    Kind.VALUE: run,
    Kind.COROUTINE: arun,
    Kind.GENERATOR: iterate,
    Kind.ASYNC_GENERATOR: aiterate,
}
