"""Requests for approval in the fake gateway: asked, decided, used up, run out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias
from uuid import uuid4

from toolgate._capture.jsontext import Json, exact
from toolgate.permitted import Permitted
from toolgate.steps import ApprovalStatus
from toolgate.testing.answers import Refusal, fields_refused
from toolgate.testing.clock import LeapingClock
from toolgate.testing.fields import Fields
from toolgate.testing.rules import excess

__all__ = ["Asked", "Ledger", "Then"]

#: what becomes of a request by itself: a person's decision at once, or nobody's ever
Then: TypeAlias = Literal["approved", "denied", "ignored"]

_WAITS: Final = 24 * 3600.0
_USABLE: Final = 3600.0
_HIDDEN: Final = "$digest"


@dataclass
class Asked:
    """A request for approval."""

    agent_id: str
    action: str
    context: dict[str, Any]
    permission_id: str
    run_id: str
    call_id: str
    reason: str | None
    created: float
    expires: float
    then: Then | None = None
    status: ApprovalStatus = "pending"
    approval_id: str = field(default_factory=lambda: str(uuid4()))
    note: str | None = None
    decided: float | None = None
    replaced_by: str | None = None
    replaces: str | None = None
    consumed_call_id: str = ""
    rejected: bool = False

    @property
    def bound_to(self) -> tuple[str, ...]:
        """What makes it a request of a check's."""
        return (self.agent_id, self.action, exact(self.context), self.permission_id, self.run_id)


class Ledger:
    """All requests.

    Args:
        clock: The gateway's.
    """

    def __init__(self, clock: LeapingClock) -> None:
        self._clock = clock
        self._asked: dict[str, Asked] = {}
        self._watching: list[tuple[str, Callable[[], None]]] = []

    def newest_first(self) -> list[Asked]:
        """All requests, the newest first."""
        return list(self._asked.values())[::-1]

    def find(self, approval_id: str) -> Asked:
        """One request.

        Raises:
            Refusal: 404.
        """
        found = self._asked.get(approval_id)
        if found is None:
            raise Refusal(404, "Approval not found")
        return found

    def state(self, asked: Asked) -> ApprovalStatus:
        """Where a request stands by the clock."""
        if asked.status in {"pending", "approved"} and asked.expires <= self._clock.now():
            return "expired"
        return asked.status

    def pending(self) -> list[Asked]:
        """The requests that wait, the oldest first."""
        return [one for one in self._asked.values() if self.state(one) == "pending"]

    def add(self, asked: Asked) -> None:
        """Take a request; what is to become of it by itself, becomes."""
        self._asked[asked.approval_id] = asked
        if asked.then == "approved":
            self.approve(asked, None)
        elif asked.then == "denied":
            self.deny(asked, None)

    def new(self, bound_to: Callable[[float, float], Asked]) -> Asked:
        """Make a request that waits from now on."""
        now = self._clock.now()
        asked = bound_to(now, now + _WAITS)
        self.add(asked)
        return asked

    def approve(self, asked: Asked, note: str | None) -> None:
        """A person approves.

        Raises:
            Refusal: 409, it is no longer pending.
        """
        self._decide(asked, "approved", note)
        asked.expires = self._clock.now() + _USABLE

    def deny(self, asked: Asked, note: str | None) -> None:
        """A person says no.

        Raises:
            Refusal: 409, it is no longer pending.
        """
        self._decide(asked, "denied", note)

    def edited(self, asked: Asked, context: dict[str, Any], permitted: Permitted | None) -> Asked:
        """The request with an edited context, in the place of `asked`.

        Raises:
            Refusal: 400, the context cannot be; 409, the request is no longer pending.
        """
        self._demand_pending(asked)
        fields = Fields({"context": context})
        fields.context()
        fields.finish()
        if exact(context) == exact(asked.context):
            return asked
        _refuse_hidden(asked.context, context)
        reason = None if permitted is None else excess(permitted, context)
        if reason is not None:
            raise fields_refused({"context": [reason]})
        successor = Asked(
            agent_id=asked.agent_id,
            action=asked.action,
            context=context,
            permission_id=asked.permission_id,
            run_id=asked.run_id,
            call_id=asked.call_id,
            reason=asked.reason,
            created=self._clock.now(),
            expires=asked.expires,
            replaces=asked.approval_id,
        )
        self._asked[successor.approval_id] = successor
        asked.status, asked.replaced_by = "replaced", successor.approval_id
        self.tell(asked)
        return successor

    def withdraw(self, approval_id: str, *, rejected: bool = False) -> Asked:
        """Cancel an open request; a `rejected` one stays denied under its call id.

        Raises:
            Refusal: 404 unknown, 409 no longer open.
        """
        asked = self.find(approval_id)
        state = self.state(asked)
        if state not in {"pending", "approved"}:
            raise Refusal(409, f"Approval is no longer open: it is {state}")
        asked.status, asked.rejected = "cancelled", rejected
        self.tell(asked)
        return asked

    def cancel(self, of: Callable[[Asked], bool]) -> None:
        """Cancel what is open, for good."""
        for asked in self._asked.values():
            if of(asked) and self.state(asked) in {"pending", "approved"}:
                asked.status = "cancelled"
                self.tell(asked)

    def shown(self, asked: Asked) -> dict[str, Json]:
        """A request as the asking agent sees it."""
        edited = self._asked.get(asked.replaced_by or "", asked)
        passed = edited.replaces is not None and self.state(edited) in {"approved", "consumed"}
        return {
            "id": asked.approval_id,
            "agent_id": asked.agent_id,
            "action": asked.action,
            "status": self.state(asked),
            "context": asked.context,
            "run_id": asked.run_id or None,
            "call_id": asked.call_id or None,
            "note": asked.note,
            "created_at": self._clock.wire(asked.created),
            "expires_at": self._clock.wire(asked.expires),
            "decided_at": None if asked.decided is None else self._clock.wire(asked.decided),
            "replaced_by": asked.replaced_by,
            "approved_context": edited.context if passed else None,
        }

    def watch(self, approval_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Have `wake` called at a change; returns what ends that."""
        watching = (approval_id, wake)
        self._watching.append(watching)
        return lambda: self._watching.remove(watching)

    def tell(self, asked: Asked) -> None:
        """Wake whoever watches a request."""
        for approval_id, wake in list(self._watching):
            if approval_id == asked.approval_id:
                wake()

    def tell_all(self) -> None:
        """Wake everybody: time has passed."""
        for _, wake in list(self._watching):
            wake()

    def _decide(self, asked: Asked, status: ApprovalStatus, note: str | None) -> None:
        self._demand_pending(asked)
        asked.status, asked.note, asked.decided = status, note, self._clock.now()
        self.tell(asked)

    def _demand_pending(self, asked: Asked) -> None:
        state = self.state(asked)
        if state != "pending":
            raise Refusal(409, f"Approval is no longer pending: it is {state}")


def _refuse_hidden(asked: dict[str, Any], edited: dict[str, Any]) -> None:
    before, after = dict(_hidden(asked)), dict(_hidden(edited))
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            raise fields_refused(
                {"context": [f"{path!r} is hidden and cannot be edited; send it as it was asked"]}
            )


def _hidden(value: Any, path: str = "") -> list[tuple[str, str]]:
    if isinstance(value, dict) and _HIDDEN in value:
        return [(path, exact(value))]
    if isinstance(value, dict):
        return [
            found
            for name, member in value.items()
            for found in _hidden(member, f"{path}.{name}" if path else name)
        ]
    if isinstance(value, list):
        return [found for index, item in enumerate(value) for found in _hidden(item, f"{path}[{index}]")]
    return []
