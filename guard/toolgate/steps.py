"""What a guarded call asks of the outside world, and what it is answered."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from toolgate._capture.jsontext import Json
from toolgate._outbox.entries import Intent
from toolgate.errors import ApprovalPending
from toolgate.identity import Identity

__all__ = [
    "Approval",
    "ApprovalStatus",
    "AskCaller",
    "AwaitApproval",
    "Check",
    "Edit",
    "HandOver",
    "Inapplicable",
    "Intend",
    "LogStatus",
    "Look",
    "Outcome",
    "Raised",
    "Recapture",
    "Record",
    "Refusals",
    "Returned",
    "Run",
    "Step",
    "Unanswered",
    "Verify",
]

LogStatus: TypeAlias = Literal["success", "failed", "pending", "denied"]
ApprovalStatus: TypeAlias = Literal[
    "pending", "approved", "denied", "expired", "cancelled", "replaced", "consumed"
]


def _new_key() -> str:
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Check:
    """Ask the gateway; answered with a `Decision`, or with `Unanswered` if it may fail open.

    Attributes:
        fail_open: What was refused before, and so does not fail open; None if nothing does.
        dry_run: Only look.
        key: The question's own, however often it is sent: a lost answer must not cost a second approval.
        reason: Text for the approver; nothing is decided by it.
    """

    action: str
    who: Identity
    context: dict[str, Json]
    approval_id: str | None = None
    fail_open: Refusals | None = field(default=None, compare=False, repr=False)
    dry_run: bool = False
    key: str = field(default_factory=_new_key, compare=False, repr=False)
    reason: str | None = field(default=None, compare=False, repr=False)


class Refusals(Protocol):
    """What the gateway held or blocked when this process last asked it."""

    def holds(self, check: Check) -> bool:
        """Whether the action was last refused to the agent, or may have been."""
        ...

    def count(self) -> int:
        """Count one call that runs unasked; returns how many of this process have."""
        ...


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No gateway answered, and the call fails open.

    Attributes:
        why: What happened instead.
    """

    why: str


@dataclass(frozen=True, slots=True)
class AwaitApproval:
    """Wait until a person decided; answered with an `Approval`, or None when the time is up."""

    action: str
    who: Identity
    approval_id: str


@dataclass(frozen=True, slots=True)
class Look:
    """See at once what became of an approval; answered with an `Approval`.

    Attributes:
        resumed: The caller named the approval: one the gateway does not know is the caller's mistake.
        patient: Outlast a gateway that is away as a wait would; then answered with None when the time is up.
        forgiving: Answered with None as well if the gateway is away.
    """

    action: str
    who: Identity
    approval_id: str
    resumed: bool = False
    patient: bool = False
    forgiving: bool = False


@dataclass(frozen=True, slots=True)
class AskCaller:
    """Ask the caller's `on_hold` what to do; answered with `raise`, `wait` or `check`."""

    pending: ApprovalPending


@dataclass(frozen=True, slots=True)
class Recapture:
    """Look at the arguments again; answered with a `Captured`.

    Attributes:
        as_given: As the caller gave them, without a person's edit.
    """

    as_given: bool = False


@dataclass(frozen=True, slots=True)
class Edit:
    """Put a person's edit into the arguments; answered with a `Captured` of them, or `Inapplicable`.

    Attributes:
        asked: The context the gateway was asked about.
        approved: The context the person approved instead.
    """

    asked: dict[str, Json]
    approved: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Inapplicable:
    """An edit that cannot be put into the arguments.

    Attributes:
        why: What stands against it, naming the field and never its value.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Intend:
    """Write down that the tool is about to run; answered with an `Intent`, or None if that is lost.

    Attributes:
        record: What is recorded if nothing is heard of it again.
    """

    record: Record


@dataclass(frozen=True, slots=True)
class HandOver:
    """The call is allowed, and its tool runs elsewhere: nothing more is heard of it here; answered with nothing.

    Attributes:
        record: What is to be recorded if nothing is heard of it at all.
    """

    record: Record


@dataclass(frozen=True, slots=True)
class Verify:
    """Compare the arguments with what was captured of them last; answered with why the tool may not run, or None."""


@dataclass(frozen=True, slots=True)
class Run:
    """The tool's turn; answered with an `Outcome`."""


@dataclass(frozen=True, slots=True)
class Record:
    """Record what happened; answered with nothing, and never fails.

    Attributes:
        reason: Why the call was refused or held, in the gateway's or a person's words. Not read from the
            context, where the same name may be an argument.
        waits: The call goes on to wait for the approval.
        intent: What was written down before the tool ran.
        may_be_lost: The call fails open, also where it cannot be recorded.
    """

    action: str
    who: Identity
    status: LogStatus
    context: dict[str, Json]
    approval_id: str | None = None
    decision_id: str | None = None
    reason: str | None = None
    waits: bool = False
    intent: Intent | None = None
    may_be_lost: bool = False


@dataclass(frozen=True, slots=True)
class Approval:
    """What became of an approval request (decisions §5).

    Attributes:
        status: Where it stands.
        note: What the person said.
        replaced_by: The approval that stands for it since a person edited it.
        approved_context: What a person approved in place of what was asked.
        context: What was asked.
        action: For which action.
        agent_id: For which agent.
        approval_id: Its id.
    """

    status: ApprovalStatus
    note: str | None = None
    replaced_by: str | None = None
    approved_context: dict[str, Json] | None = None
    context: dict[str, Json] | None = None
    action: str | None = None
    agent_id: str | None = None
    approval_id: str = field(default="", compare=False)


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
Step: TypeAlias = (
    Check | AwaitApproval | Look | AskCaller | Recapture | Edit | Intend | Verify | HandOver | Run | Record
)
