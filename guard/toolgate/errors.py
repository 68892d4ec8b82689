"""Exceptions of the SDK. If a guarded call raises one of them, its tool did not run.

    GuardError
    │   decisions of the gateway
    ├── ActionDenied          the policy denies the action
    │   └── ApprovalDenied    an approver rejected it
    ├── ApprovalPending       it waits for an approver
    ├── ApprovalExpired       it was not decided, or not used, in time
    │   no decision
    ├── GatewayUnavailable    no gateway responded within the deadline
    ├── GatewayProtocolError  the response contains no valid decision
    ├── OutboxFull            the call could not be recorded
    └── ConfigurationError    the guard is set up or used wrongly

`ApprovalExpired` is not an `ActionDenied`: no approver rejected the call.
Every error can be pickled and copied, so that it may cross a process pool or a task queue.
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
    """Base class of all errors of the SDK; the guarded tool did not run."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The constructors take keyword arguments, which the default protocol does not pass.
        return _rebuild, (type(self), self.args, dict(self.__dict__))


def _rebuild(kind: type[GuardError], args: tuple[Any, ...], state: dict[str, Any]) -> GuardError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ActionDenied(GuardError):
    """The gateway denied the action.

    Attributes:
        action: The action.
        agent_id: The agent.
        reason: The gateway's explanation.
        approval_id: The approval request of the call, if there was one.
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
    """An approver rejected the approval request; `reason` is their note."""

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
    """The call waits for an approver; after the approval the same call is allowed once.

    Attributes:
        action: The action.
        agent_id: The agent.
        approval_id: The pending approval request.
        reason: The gateway's explanation, if it sent one.
    """

    _verb = "waits for a person's approval"


class ApprovalExpired(_ApprovalError):
    """The approval request expired before it was decided or used; another call creates a new one.

    Attributes:
        action: The action.
        agent_id: The agent.
        approval_id: The expired approval request.
        reason: Details of the expiry.
    """

    _verb = "was not carried out, its approval request expired"


class _GatewayError(GuardError):
    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class GatewayUnavailable(_GatewayError):
    """No gateway responded within the deadline, or it responded 429 or 5xx until then.

    Attributes:
        status: The last HTTP status, or None without any response.
        answered: Whether anything responded, also another server: with a partial response, an untrusted certificate, or
            bytes that are not HTTP. False if no connection could be established, nothing was received in time, or a
            proxy responded 502, 503 or 504 because it has no gateway to forward to.
        reached: Whether a gateway may have received the call: a connection was established, also if the deadline passed
            before a response. `fail_open` applies only if this and `answered` are False.
    """

    def __init__(
        self, message: str, *, status: int | None = None, answered: bool = True, reached: bool = True
    ) -> None:
        super().__init__(message, status=status)
        self.answered = answered
        self.reached = reached


class GatewayProtocolError(_GatewayError):
    """The response is not one of the gateway's: it contains no valid decision.

    Attributes:
        status: The HTTP status of the response.
    """


class OutboxFull(GuardError):
    """The outbox has no room for the call's log entry, or cannot be written.

    Attributes:
        action: The action.
        reason: What is wrong with the outbox.
        hint: How to fix it.
    """

    def __init__(self, *, action: str, reason: str, hint: str) -> None:
        super().__init__(
            f"action {action!r} is not carried out, because it could not be recorded: {reason}; {hint}"
        )
        self.action = action
        self.reason = reason
        self.hint = hint

    @property
    def cure(self) -> str:
        """Deprecated name of `hint`."""
        from toolgate._logging import warn_renamed

        warn_renamed("OutboxFull.cure", "OutboxFull.hint")
        return self.hint


class ConfigurationError(GuardError):
    """The guard is set up or used wrongly; the message names the setting and the fix."""
