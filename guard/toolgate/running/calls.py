"""Run a function or coroutine function; its value and its exception go through untouched."""

from __future__ import annotations

import time
from typing import Any

from toolgate.drivers import adrive, drive, since
from toolgate.running.results import goes_on, going_on
from toolgate.running.turn import Turn
from toolgate.steps import Raised, Returned

__all__ = ["arun", "run"]


def run(turn: Turn) -> Any:
    """Check, call, record."""
    flow, performer = turn.flow(), turn.performer()
    drive(flow, performer)
    began = time.perf_counter()
    try:
        value = turn.start()
    except BaseException as error:
        drive(flow, performer, Raised(error, since(began)))
        # Bare, and here: raising the object again elsewhere would replace its context.
        raise
    if goes_on(value):
        return going_on(value, turn, flow, performer, began)
    drive(flow, performer, Returned(since(began)))
    return value


async def arun(turn: Turn) -> Any:
    """As `run`; a cancelled tool is recorded as well."""
    flow, performer = turn.flow(), turn.async_performer()
    await adrive(flow, performer)
    began = time.perf_counter()
    try:
        value = await turn.start()
    except BaseException as error:
        await adrive(flow, performer, Raised(error, since(began)))
        raise
    await adrive(flow, performer, Returned(since(began)))
    return value
