"""Run a flow synchronously, run it asynchronously.

`drive` performs steps until the tool's turn or the end; `call` does all of it around a tool.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from toolgate.calls import Flow
from toolgate.observing import abandoned
from toolgate.performers import AsyncPerformer, Performer
from toolgate.steps import (
    AskCaller,
    AwaitApproval,
    Check,
    Edit,
    Look,
    Outcome,
    Raised,
    Recapture,
    Record,
    Returned,
    Run,
)

__all__ = ["acall", "adrive", "call", "drive", "since"]

_T = TypeVar("_T")


def call(flow: Flow, performer: Performer, tool: Callable[[], _T]) -> _T:
    """Run `tool` where the flow lets it; its value and its exception go through untouched."""
    drive(flow, performer)
    began = time.perf_counter()
    try:
        value = tool()
    except BaseException as error:
        drive(flow, performer, Raised(error, since(began)))
        # Bare, and here: raising the object again elsewhere would replace its context.
        raise
    drive(flow, performer, Returned(since(began)))
    return value


async def acall(flow: Flow, performer: AsyncPerformer, tool: Callable[[], Awaitable[_T]]) -> _T:
    """As `call`; a cancelled tool is recorded as well."""
    await adrive(flow, performer)
    began = time.perf_counter()
    try:
        value = await tool()
    except BaseException as error:
        await adrive(flow, performer, Raised(error, since(began)))
        raise
    await adrive(flow, performer, Returned(since(began)))
    return value


def drive(flow: Flow, performer: Performer, answer: Outcome | None = None) -> None:
    """Perform steps until the tool's turn or the end; `answer` is the tool's outcome after its turn."""
    try:
        _drive(flow, performer, answer)
    except BaseException as error:
        abandoned(flow, error)
        raise


def _drive(flow: Flow, performer: Performer, answer: Outcome | None) -> None:
    reply: Any = answer
    while True:
        try:
            step = flow.send(reply)
        except StopIteration:
            return
        match step:
            case Check():
                reply = performer.check(step)
            case AwaitApproval() | Look():
                reply = performer.approval(step)
            case AskCaller():
                reply = performer.ask_caller(step)
            case Recapture() | Edit():
                reply = performer.captured(step)
            case Record():
                performer.record(step)
                reply = None
            case Run():
                return


async def adrive(flow: Flow, performer: AsyncPerformer, answer: Outcome | None = None) -> None:
    """As `drive`; of a coroutine that is being closed the record waits for the next one to be sent."""
    try:
        await _adrive(flow, performer, answer)
    except BaseException as error:
        abandoned(flow, error)
        raise


async def _adrive(flow: Flow, performer: AsyncPerformer, answer: Outcome | None) -> None:
    reply: Any = answer
    # Closing a coroutine throws GeneratorExit into it, and after that it may await nothing.
    closing = isinstance(answer, Raised) and isinstance(answer.error, GeneratorExit)
    while True:
        try:
            step = flow.send(reply)
        except StopIteration:
            return
        match step:
            case Check():
                reply = await performer.check(step)
            case AwaitApproval() | Look():
                reply = await performer.approval(step)
            case AskCaller():
                reply = await performer.ask_caller(step)
            case Recapture() | Edit():
                reply = performer.captured(step)
            case Record():
                if closing:
                    performer.keep(step)
                else:
                    await performer.record(step)
                reply = None
            case Run():
                return


def since(began: float) -> float:
    """Milliseconds since `began` on the performance counter."""
    return round((time.perf_counter() - began) * 1000, 3)
