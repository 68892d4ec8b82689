"""What a guarded call asks of the outside world, and what it is answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from toolgate.capture.jsontext import Json
from toolgate.identity import Identity

__all__ = [
    "Approval",
    "ApprovalStatus",
    "AwaitApproval",
    "Check",
    "LogStatus",
    "Outcome",
    "Raised",
    "Recapture",
    "Record",
    "Returned",
    "Run",
    "Step",
]

LogStatus: TypeAlias = Literal["success", "failed", "pending", "denied"]
ApprovalStatus: TypeAlias = Literal[
    "pending", "approved", "denied", "expired", "cancelled", "replaced", "consumed"
]


@dataclass(frozen=True, slots=True)
class Check:
    """Ask the gateway; answered with a `Decision`."""

    action: str
    who: Identity
    context: dict[str, Json]
    approval_id: str | None = None


@dataclass(frozen=True, slots=True)
class AwaitApproval:
    """Wait until a person decided; answered with an `Approval`, or None when the time is up."""

    action: str
    who: Identity
    approval_id: str


@dataclass(frozen=True, slots=True)
class Recapture:
    """Look at the arguments again; answered with a `Captured`."""


@dataclass(frozen=True, slots=True)
class Run:
    """The tool's turn; answered with an `Outcome`."""


@dataclass(frozen=True, slots=True)
class Record:
    """Record what happened; answered with nothing, and never fails.

    Attributes:
        reason: Why the call was refused or held, in the gateway's or a person's words. Not read from the
            context, where the same name may be an argument.
    """

    action: str
    who: Identity
    status: LogStatus
    context: dict[str, Json]
    approval_id: str | None = None
    decision_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """What became of an approval request (decisions §5)."""

    status: ApprovalStatus
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Returned:
    """The tool returned.

    Attributes:
        duration_ms: How long it ran, in milliseconds.
        facts: What else the log entry is to say.
    """

    duration_ms: float
    facts: dict[str, Json] = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True)
class Raised:
    """The tool raised.

    An exception travels into the flow as this value and not through `generator.throw`, which turns a
    tool's StopIteration into a RuntimeError (PEP 479).

    Attributes:
        error: What it raised.
        duration_ms: How long it ran, in milliseconds.
        facts: What else the log entry is to say.
    """

    error: BaseException
    duration_ms: float
    facts: dict[str, Json] = field(default_factory=dict[str, Json])


Outcome: TypeAlias = Returned | Raised
Step: TypeAlias = Check | AwaitApproval | Recapture | Run | Record
