"""Effects (requests for I/O) that the flow of a guarded call yields, and the replies to them.

A flow is a generator that contains the rules of one guarded call and does no I/O. It yields an effect, such as
`SendCheck`. A driver (`_drivers`) performs the effect and sends the reply into the generator, or throws the gateway's
error into it. Tests can therefore run a flow without network, clock or tool.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from toolgate._capture.jsontext import Json
from toolgate._models import Check, Entry, Intent
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
    "Invoke",
    "Outcome",
    "Raised",
    "Returned",
    "RunTool",
    "SendCheck",
    "Sleep",
    "Steps",
    "WriteEntry",
    "WriteIntent",
]


@dataclass(frozen=True, slots=True)
class SendCheck:
    """Effect that sends a check to the gateway; the driver sends back a `Decision`.

    Attributes:
        check: The check, which is a request for a decision.
        seconds: Seconds until the deadline; None for the `timeout` of the guard's settings.
    """

    check: Check
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class GetApproval:
    """Effect that reads an approval request; the driver sends back an `Approval`.

    Attributes:
        approval_id: Id of the approval request.
        wait: Seconds for which the gateway may delay its response until the state changes (long poll).
        polls: True if the call waits for an approver and therefore reads the request repeatedly.
    """

    approval_id: str
    wait: int = 0
    polls: bool = False


@dataclass(frozen=True, slots=True)
class CancelApproval:
    """Effect that withdraws an approval request; the driver sends back an `Approval`.

    Attributes:
        approval_id: Id of the approval request.
        seconds: Deadline in seconds.
    """

    approval_id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Sleep:
    """Effect that makes the driver pause for `seconds`; the driver sends back None."""

    seconds: float


@dataclass(frozen=True, slots=True)
class AskCaller:
    """Effect that calls the application's `on_hold` function; the driver sends back `raise`, `wait` or `check`.

    Attributes:
        pending: The exception that the function receives as its argument.
    """

    pending: ApprovalPending


@dataclass(frozen=True, slots=True)
class WriteIntent:
    """Effect that writes an intent to the outbox: a log entry with unknown outcome, before the tool runs.

    The driver sends back the `Intent`, or None if it could not be stored and `may_be_lost` is set.

    Attributes:
        entry: The log entry, which is sent to the gateway only if the process dies before the tool has ended.
        may_be_lost: True if the tool may run although the entry cannot be stored (`fail_open`).
    """

    entry: Entry
    may_be_lost: bool = False


@dataclass(frozen=True, slots=True)
class WriteEntry:
    """Effect that writes a log entry to the outbox; the driver sends back None.

    If the entry cannot be stored, the flow receives no error, because the tool may have run already.

    Attributes:
        entry: Log entry to write.
        intent: The intent that the entry replaces; None if no intent was written.
    """

    entry: Entry
    intent: Intent | None = None


@dataclass(frozen=True, slots=True)
class RunTool:
    """Effect that makes `drive` return: its caller runs the tool, and then passes the `Outcome` to `drive`."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Last effect of an allowed call whose tool another process runs; the driver sends back None.

    Attributes:
        context: Arguments and details for a log entry with unknown outcome, which is stored if the other process does
            not report the outcome.
        agent_id: Id of the agent.
        approval_id: Id of the approval that covers the call, if an approval was required.
        decision_id: Id of the decision.
    """

    context: dict[str, Json]
    agent_id: str
    approval_id: str | None
    decision_id: str | None


@dataclass(frozen=True, slots=True)
class Cleanup:
    """Effect that runs a second flow, which withdraws the approval request of an interrupted call.

    The driver sends back None.

    Attributes:
        make_flow: Function that creates the second flow. It is called again if an ending event loop cancelled that
            flow.
    """

    make_flow: Callable[[], Flow]


@dataclass(frozen=True, slots=True)
class Invoke:
    """Effect that calls a function; the driver sends back its result, or throws its exception into the generator.

    Attributes:
        run: Function that is called if the generator runs synchronously.
        arun: Function that is called and awaited if the generator runs asynchronously.
    """

    run: Callable[[], Any]
    arun: Callable[[], Awaitable[Any]]


class Interrupted(BaseException):
    """Exception that the driver throws into a flow when the thread or task of the call is interrupted.

    The flow may yield a `Cleanup` effect, and then raises this exception again.
    """


@dataclass(frozen=True, slots=True)
class Returned:
    """Outcome of a tool that returned; the driver sends this object into the flow.

    Attributes:
        duration_ms: Run time of the tool in milliseconds.
        facts: Further details to log in addition to the arguments.
    """

    duration_ms: float
    facts: dict[str, Json] = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True)
class Raised:
    """Outcome of a tool that raised an exception.

    The driver sends this object into the flow instead of throwing the exception: in a generator, a thrown
    StopIteration would become a RuntimeError (PEP 479).

    Attributes:
        error: Exception that the tool raised.
        duration_ms: Run time of the tool in milliseconds.
        facts: Further details to log in addition to the arguments.
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
T = TypeVar("T")
#: Generator that the plugins use: all its effects are `Invoke`, and T is the type of its result.
Steps: TypeAlias = Generator[Invoke, Any, T]
