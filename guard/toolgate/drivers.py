"""Run a flow synchronously, run it asynchronously.

`drive` performs steps until the tool's turn or the end; what a tool of each kind does in its turn stands in `running`.
"""

from __future__ import annotations

import time
from typing import Any

from toolgate.calls import Flow
from toolgate.observing import abandoned
from toolgate.performers import AsyncPerformer, Performer
from toolgate.steps import (
    AskCaller,
    AwaitApproval,
    Check,
    Edit,
    HandOver,
    Intend,
    Look,
    Outcome,
    Recapture,
    Record,
    Run,
    Verify,
)

__all__ = ["adrive", "drive", "keep", "since"]


def drive(flow: Flow, performer: Performer, answer: Outcome | None = None) -> Run | HandOver | None:
    """Perform steps until the tool's turn, here or elsewhere, or the end; `answer` is the tool's outcome after its turn.

    Returns:
        The tool's turn; None at the end.
    """
    try:
        return _drive(flow, performer, answer)
    except BaseException as error:
        abandoned(flow, error)
        raise


def _drive(flow: Flow, performer: Performer, answer: Outcome | None) -> Run | HandOver | None:
    reply: Any = answer
    while True:
        try:
            step = flow.send(reply)
        except StopIteration:
            return None
        match step:
            case Check():
                reply = performer.check(step)
            case AwaitApproval() | Look():
                reply = performer.approval(step)
            case AskCaller():
                reply = performer.ask_caller(step)
            case Recapture() | Edit() | Verify():
                reply = performer.arguments(step)
            case Intend():
                reply = performer.intend(step)
            case Record():
                performer.record(step)
                reply = None
            case Run() | HandOver():
                return step


async def adrive(
    flow: Flow, performer: AsyncPerformer, answer: Outcome | None = None
) -> Run | HandOver | None:
    """As `drive`; after the tool nothing is awaited, so that a coroutine may be closed or cancelled."""
    try:
        return await _adrive(flow, performer, answer)
    except BaseException as error:
        abandoned(flow, error)
        raise


async def _adrive(flow: Flow, performer: AsyncPerformer, answer: Outcome | None) -> Run | HandOver | None:
    reply: Any = answer
    while True:
        try:
            step = flow.send(reply)
        except StopIteration:
            return None
        match step:
            case Check():
                reply = await performer.check(step)
            case AwaitApproval() | Look():
                reply = await performer.approval(step)
            case AskCaller():
                reply = await performer.ask_caller(step)
            case Recapture() | Edit() | Verify():
                reply = performer.arguments(step)
            case Intend():
                reply = await performer.intend(step)
            case Record():
                # After the tool it awaits nothing: a coroutine that is being closed must not.
                await performer.record(step)
                reply = None
            case Run() | HandOver():
                return step


def keep(flow: Flow, performer: Performer | AsyncPerformer, outcome: Outcome) -> None:
    """As `drive` after the tool's turn, where nothing may be waited for: what happened is recorded later."""
    reply: Outcome | None = outcome
    while True:
        try:
            step = flow.send(reply)
        except StopIteration:
            return
        if isinstance(step, Record):
            performer.keep(step)
        reply = None


def since(began: float) -> float:
    """Milliseconds since `began` on the performance counter."""
    return round((time.perf_counter() - began) * 1000, 3)
