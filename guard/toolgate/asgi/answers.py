"""What an HTTP client is told of a request that was not carried out."""

from __future__ import annotations

import json
import logging
from typing import Final

from toolgate.asgi.types import Scope, Send
from toolgate.errors import (
    ActionDenied,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    GatewayUnavailable,
    GuardError,
    OutboxFull,
)
from toolgate.events import tell

__all__ = ["Refusal", "refusal_of"]

# Seconds: a person takes longer than a gateway that restarts.
_ASK_AGAIN: Final = 10
_TRY_AGAIN: Final = 5
# RFC 6455: what a peer says breaks the policy; before it is accepted servers answer 403.
_POLICY: Final = 1008


class Refusal(Exception):
    """The application does not see the request.

    Args:
        status: The HTTP status.
        detail: Why, for the client.
        outcome: The same in one word, for programs.
        facts: More members of the answer.
        retry_after: Seconds after which asking again may help.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        outcome: str = "refused",
        facts: dict[str, str | None] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self._body = {"detail": detail, "outcome": outcome, **(facts or {})}
        self._headers = {"content-type": "application/json", "cache-control": "no-store"}
        self._headers["x-toolgate-outcome"] = outcome
        if retry_after is not None:
            self._headers["retry-after"] = str(retry_after)

    async def answer(self, scope: Scope, send: Send) -> None:
        """Say so to the client."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY})
            return
        body = json.dumps(self._body).encode()
        headers = {**self._headers, "content-length": str(len(body))}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": pairs})
        await send({"type": "http.response.body", "body": body})


def refusal_of(error: GuardError, action: str, agent_id: str | None) -> Refusal:
    """What a client is told of what a guarded call raised in place of running.

    Settings and addresses are the operator's business: of faults the log says more than the client reads.
    """
    facts = {"action": action, "approval_id": getattr(error, "approval_id", None)}
    match error:
        case ApprovalPending():
            why = "not done yet: a person must approve it; repeated just so it is carried out once they did"
            return Refusal(202, why, outcome="pending", facts=facts, retry_after=_ASK_AGAIN)
        case ActionDenied():
            outcome = "declined" if isinstance(error, ApprovalDenied) else "blocked"
            return Refusal(403, error.reason, outcome=outcome, facts=facts)
        case ApprovalExpired():
            return Refusal(403, "nobody decided in time", outcome="expired", facts=facts)
    tell("request_failed", action, agent_id, type(error).__name__, reason=error, level=logging.ERROR)
    facts = {"action": action}
    match error:
        case GatewayUnavailable():
            why = "the permission gateway did not answer"
        case OutboxFull():
            why = "what would be done could not be recorded"
        case _:
            why = "the permission gateway could not decide; tell the operator"
            return Refusal(500, f"not done: {why}", outcome="fault", facts=facts)
    return Refusal(503, f"not done: {why}", outcome="unavailable", facts=facts, retry_after=_TRY_AGAIN)
