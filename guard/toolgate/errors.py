"""Everything the SDK raises on its own account.

    GuardError
    │   outcomes: the gateway answered, and the tool did not run
    ├── ActionDenied          the action is blocked
    │   └── ApprovalDenied    a person said no
    ├── ApprovalPending       the action waits for a person
    ├── ApprovalExpired       nobody decided in time, or the approval was not used in time
    │   faults: no answer that can be acted on, and the tool did not run
    ├── GatewayUnavailable    no gateway answered within the deadline
    ├── GatewayProtocolError  something answered, but not as the gateway promises
    ├── OutboxFull            the call could not be recorded
    └── ConfigurationError    the guard is set up or used wrongly

An expiry is never reported as a person's no: `ApprovalExpired` is not an `ActionDenied`.
Every error survives `pickle` and `copy`, so it may cross a process pool or a task queue.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ActionDenied",
    "ApprovalDenied",
    "ApprovalExpired",
    "ApprovalPending",
    "ConfigurationError",
    "GatewayProtocolError",
    "GatewayUnavailable",
    "GuardError",
    "OutboxFull",
]


class GuardError(Exception):
    """Base of everything the SDK raises; the guarded tool did not run."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The constructors take keywords, which the default protocol would not pass again.
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(kind: type[GuardError], args: tuple[Any, ...], state: dict[str, Any]) -> GuardError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ActionDenied(GuardError):
    """The gateway blocked the action (spec §4: `allowed` and `requires_approval` both false).

    Attributes:
        action: The action that was asked for.
        agent_id: The agent it was asked for.
        reason: The gateway's explanation.
        approval_id: The approval request that led here, if there was one.
        decision_id: The gateway's id of the decision, if it sent one.
    """

    _verb = "is blocked"

    def __init__(
        self,
        *,
        action: str,
        agent_id: str,
        reason: str,
        approval_id: str | None = None,
        decision_id: str | None = None,
    ) -> None:
        super().__init__(f"action {action!r} of agent {agent_id!r} {self._verb}: {reason}")
        self.action = action
        self.agent_id = agent_id
        self.reason = reason
        self.approval_id = approval_id
        self.decision_id = decision_id


class ApprovalDenied(ActionDenied):
    """A person declined the approval request; `reason` is their note."""

    _verb = "was declined by a person"


class _ApprovalError(GuardError):
    _verb = ""

    def __init__(self, *, action: str, agent_id: str, approval_id: str, reason: str | None = None) -> None:
        tail = f": {reason}" if reason else ""
        super().__init__(
            f"action {action!r} of agent {agent_id!r} {self._verb} (approval {approval_id!r}){tail}"
        )
        self.action = action
        self.agent_id = agent_id
        self.approval_id = approval_id
        self.reason = reason


class ApprovalPending(_ApprovalError):
    """The action waits for a person; the same call passes once after they approve it (decisions §5).

    Attributes:
        action: The action that was asked for.
        agent_id: The agent it was asked for.
        approval_id: The approval request a person is to decide.
        reason: The gateway's explanation, if it sent one.
    """

    _verb = "waits for a person's approval"


class ApprovalExpired(_ApprovalError):
    """The approval request ran out before it was decided or used; calling again asks anew.

    Attributes:
        action: The action that was asked for.
        agent_id: The agent it was asked for.
        approval_id: The approval request that expired.
        reason: What is known about the expiry.
    """

    _verb = "was not carried out, its approval request expired"


class _GatewayError(GuardError):
    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class GatewayUnavailable(_GatewayError):
    """No gateway answered within the deadline, or it answered 429 or 5xx until then.

    Attributes:
        status: The last HTTP status seen, or None when there was no answer at all.
        answered: Whether anything answered the call, be it a stranger in the gateway's place: also with half
            an answer, a certificate that is not trusted, or bytes that are no HTTP. False: nobody could be
            connected to, nothing came in time, or a proxy said 502, 503 or 504 that had no gateway behind it.
        reached: Whether a gateway may have received the call: a connection was established, also where the
            time was over before an answer came. `fail_open` applies only where this and `answered` are False.
    """

    def __init__(
        self, message: str, *, status: int | None = None, answered: bool = True, reached: bool = True
    ) -> None:
        super().__init__(message, status=status)
        self.answered = answered
        self.reached = reached


class GatewayProtocolError(_GatewayError):
    """Something answered, but not as the gateway promises: nothing may be concluded from it.

    Attributes:
        status: The HTTP status of the answer.
    """


class OutboxFull(GuardError):
    """The outbox has no room for what the tool would do, or cannot be written (decisions §13).

    Attributes:
        action: The action that was to be carried out.
        reason: What is wrong with the outbox.
        cure: What to do about it.
    """

    def __init__(self, *, action: str, reason: str, cure: str) -> None:
        super().__init__(
            f"action {action!r} is not carried out, because it could not be recorded: {reason}; {cure}"
        )
        self.action = action
        self.reason = reason
        self.cure = cure


class ConfigurationError(GuardError):
    """The guard is set up or used wrongly; the message names the thing and the cure."""
