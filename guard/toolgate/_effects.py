"""Effects of a flow: what it yields for a driver to perform, and what the driver sends back.

A flow is a generator. `_drivers` performs each effect and sends the result into the flow; an error of the gateway is
thrown into it. Effects are data, so that a test can drive a flow without network, clock or tool.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from toolgate._capture.jsontext import Json
from toolgate._models import Check
from toolgate._outbox.entries import Entry, Intent
from toolgate.errors import ApprovalPending

__all__ = [
    "AskCaller",
    "CancelApproval",
    "Cleanup",
    "Effect",
    "Flow",
    "GetApproval",
    "HandOver",
    "Interrupted",
    "Outcome",
    "Raised",
    "Returned",
    "RunTool",
    "SendCheck",
    "Sleep",
    "WriteEntry",
    "WriteIntent",
]


@dataclass(frozen=True, slots=True)
class SendCheck:
    """Ask the gateway for a decision; the reply is a `Decision`.

    Attributes:
        check: The request.
        seconds: Deadline; None for that of the settings.
    """

    check: Check
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class GetApproval:
    """Read an approval request; the reply is an `Approval`.

    Attributes:
        approval_id: The approval request.
        wait: Seconds that the gateway may wait for a change of its state.
        polls: The read is one of many while the call waits for an approver.
    """

    approval_id: str
    wait: int = 0
    polls: bool = False


@dataclass(frozen=True, slots=True)
class CancelApproval:
    """Withdraw an approval request; the reply is an `Approval`.

    Attributes:
        approval_id: The approval request.
        seconds: Deadline.
    """

    approval_id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Sleep:
    """Pause for some seconds; the reply is None."""

    seconds: float


@dataclass(frozen=True, slots=True)
class AskCaller:
    """Call the caller's `on_hold` function; the reply is `raise`, `wait` or `check`."""

    pending: ApprovalPending


@dataclass(frozen=True, slots=True)
class WriteIntent:
    """Write to the outbox that the tool is about to run; the reply is an `Intent`, or None if it was lost.

    Attributes:
        entry: The log entry that is sent if the process dies before the tool has ended.
        may_be_lost: The call fails open, also when it cannot be recorded.
    """

    entry: Entry
    may_be_lost: bool = False


@dataclass(frozen=True, slots=True)
class WriteEntry:
    """Write a log entry to the outbox; the reply is None. Never fails.

    Attributes:
        entry: The log entry.
        intent: What was written before the tool ran.
    """

    entry: Entry
    intent: Intent | None = None


@dataclass(frozen=True, slots=True)
class RunTool:
    """Run the tool; the reply is an `Outcome`."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """The call is allowed and another process runs its tool; the reply is None.

    Attributes:
        context: Context of the log entry to write if nothing is known about the tool's outcome.
        agent_id: The agent.
        approval_id: The approval that covers the call, if it required one.
        decision_id: The decision.
    """

    context: dict[str, Json]
    agent_id: str
    approval_id: str | None
    decision_id: str | None


@dataclass(frozen=True, slots=True)
class Cleanup:
    """Run another flow although the call was interrupted; the reply is None.

    Attributes:
        make_flow: Creates that flow; called again if an event loop that ends has cancelled the first one.
    """

    make_flow: Callable[[], Flow]


class Interrupted(BaseException):
    """Thrown into a flow when its thread or task is interrupted: the flow may yield `Cleanup` and raises it again."""


@dataclass(frozen=True, slots=True)
class Returned:
    """The tool returned.

    Attributes:
        duration_ms: How long it ran, in milliseconds.
        facts: Further details for the log entry.
    """

    duration_ms: float
    facts: dict[str, Json] = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True)
class Raised:
    """The tool raised an exception.

    A tool's exception enters the flow as this value and not through `generator.throw`, which would turn a
    StopIteration into a RuntimeError (PEP 479).

    Attributes:
        error: The exception.
        duration_ms: How long it ran, in milliseconds.
        facts: Further details for the log entry.
    """

    error: BaseException
    duration_ms: float
    facts: dict[str, Json] = field(default_factory=dict[str, Json])


Outcome: TypeAlias = Returned | Raised
Effect: TypeAlias = (
    SendCheck
    | GetApproval
    | CancelApproval
    | Sleep
    | AskCaller
    | WriteIntent
    | WriteEntry
    | RunTool
    | HandOver
    | Cleanup
)
Flow: TypeAlias = Generator[Effect, Any, None]
