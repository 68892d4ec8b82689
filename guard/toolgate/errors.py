"""Exceptions of the SDK. If a guarded call raises one of them, its tool did not run.

    GuardError
    │   decisions of the gateway
    ├── ActionDenied          the policy denies the action
    │   └── ApprovalDenied    an approver rejected the call
    ├── ApprovalPending       the call waits for an approver
    ├── ApprovalExpired       the approval request was not decided, or not used, in time
    │   no decision
    ├── GatewayUnavailable    no gateway responded within the deadline
    ├── GatewayProtocolError  the response contains no valid decision
    ├── OutboxFull            the call could not be recorded
    └── ConfigurationError    the guard is set up or used wrongly

`ApprovalExpired` is not an `ActionDenied`, because no approver rejected the call.
Every error can be pickled and copied, so that process pools and task queues can return it.
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
    """Base class of all errors of the SDK. If a guarded call raises one, its tool did not run."""

    def __reduce__(self) -> tuple[Any, ...]:
        # With the default `__reduce__`, unpickling calls the class with positional arguments only, but most of these
        # classes require keyword arguments.
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(kind: type[GuardError], args: tuple[Any, ...], state: dict[str, Any]) -> GuardError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ActionDenied(GuardError):
    """The gateway denied the action.

    Attributes:
        action: Action of the call, such as `stripe.refund`.
        agent_id: Id of the agent.
        reason: The gateway's explanation.
        approval_id: Id of the approval request of the call, if there was one.
        decision_id: The gateway's id of the decision, if it sent one.
        reason_code: Code of the denied check for programs, such as `frozen` or `no_permission`. None if the gateway is
            older than these codes, or if another step than a check denied the call, for example the rejection of a
            waiting call, or a changed argument.
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
        reason_code: str | None = None,
    ) -> None:
        super().__init__(f"action {action!r} of agent {agent_id!r} {self._verb}: {reason}")
        self.action = action
        self.agent_id = agent_id
        self.reason = reason
        self.approval_id = approval_id
        self.decision_id = decision_id
        self.reason_code = reason_code


class ApprovalDenied(ActionDenied):
    """An approver rejected the approval request; `reason` is the approver's note."""

    _verb = "was rejected by a person"


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
    """The call requires an approval and waits for an approver; after the approval, the same call is allowed once.

    Attributes:
        action: Action of the call, such as `stripe.refund`.
        agent_id: Id of the agent.
        approval_id: Id of the pending approval request.
        reason: The gateway's explanation, if it sent one.
    """

    _verb = "waits for a person's approval"


class ApprovalExpired(_ApprovalError):
    """The approval request expired before it was decided or used; another call creates a new request.

    Attributes:
        action: Action of the call, such as `stripe.refund`.
        agent_id: Id of the agent.
        approval_id: Id of the expired approval request.
        reason: Explanation of the expiry.
    """

    _verb = "did not run, because its approval request expired"


class _GatewayError(GuardError):
    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class GatewayUnavailable(_GatewayError):
    """The gateway did not respond before the deadline, or responded only with status 429 or 5xx.

    Attributes:
        status: The last HTTP status, or None if there was no response.
        answered: True if a server responded, even with a partial response, an untrusted certificate, or bytes that are
            not HTTP. False if no connection could be established, if nothing was received in time, or if the only
            response was 502, 503 or 504 from a proxy that could not reach the gateway.
        reached: True if a connection to a gateway was established, so that it may have received the check, even if it
            did not respond in time. `fail_open` applies only if both `reached` and `answered` are False.
    """

    def __init__(
        self, message: str, *, status: int | None = None, answered: bool = True, reached: bool = True
    ) -> None:
        super().__init__(message, status=status)
        self.answered = answered
        self.reached = reached


class GatewayProtocolError(_GatewayError):
    """The response contains no valid decision: another server sent it, or the gateway rejected the request.

    Attributes:
        status: The HTTP status of the response.
    """


class OutboxFull(GuardError):
    """The call cannot be logged, because the outbox (the local queue of log entries) is full or cannot be written.

    Attributes:
        action: Action of the call, such as `stripe.refund`.
        reason: Description of the problem with the outbox.
        hint: Advice for fixing the problem.
    """

    def __init__(self, *, action: str, reason: str, hint: str) -> None:
        super().__init__(f"action {action!r} does not run, because it could not be logged: {reason}; {hint}")
        self.action = action
        self.reason = reason
        self.hint = hint

    @property
    def cure(self) -> str:
        """Deprecated name of `hint`."""
        from toolgate._telemetry import warn_renamed

        warn_renamed("OutboxFull.cure", "OutboxFull.hint")
        return self.hint


class ConfigurationError(GuardError):
    """A setting is missing or wrong, or the guard is used wrongly; the message names the problem and the fix."""
