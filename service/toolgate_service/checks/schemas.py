"""Parser for the body of a check, which is a request for a decision about a tool call.

The parser ignores unknown fields, so that newer SDKs work with older gateways.
"""

from collections.abc import Mapping
from typing import NamedTuple

from toolgate_service.core import strict_json
from toolgate_service.core.sdk_fields import SdkFields
from toolgate_service.core.strict_json import Json, canonical, digest


class CheckRequest(NamedTuple):
    """Request for a decision about a tool call.

    Attributes:
        approval_id: Id of the only approval request that may allow the call; None if any matching request may.
        call_id: Identifier of the call, chosen by the client.
        run_id: Identifier of the agent run that the call belongs to, chosen by the client.
        dry_run: True to decide without changing anything.
        reason: Reason for the call from the agent, which approvers see.
        canonical_text: Context as canonical JSON; None if it was not computed yet.
    """

    agent_id: str
    action: str
    context: Mapping[str, Json]
    approval_id: str | None
    call_id: str | None
    run_id: str | None
    dry_run: bool
    reason: str | None = None
    canonical_text: str | None = None

    def identity(self, raw: bytes) -> bytes:
        """Return bytes that are equal in all retries of this check and different for other checks.

        The result contains the agent and the received body `raw`, because the body of an AuthZEN evaluation need not
        contain the agent. If the body contains a reason, the result is made from the other fields instead, because an
        agent may phrase the reason differently in a retry.
        """
        if self.reason is None:
            return b"%b\n%b" % (self.agent_id.encode(), raw)
        return strict_json.dumps(
            ["check", self.agent_id, self.action, self.digest, self.approval_id, self.call_id, self.run_id]
        ).encode()

    @property
    def canonical(self) -> str:
        """Context as canonical JSON."""
        return canonical(self.context) if self.canonical_text is None else self.canonical_text

    @property
    def digest(self) -> str:
        """SHA-256 digest of the context's canonical JSON. Approvals are bound to this digest."""
        return digest(self.canonical)


def read_check_request(body: Mapping[str, Json], raw: bytes | None = None) -> CheckRequest:
    """Validate the body of a check.

    Args:
        body: The parsed body.
        raw: The body as received. If it is given, the size of the context is validated faster.

    Raises:
        FieldErrors: Fields are missing or invalid. The error contains every such field.
    """
    fields = SdkFields(body, raw)
    agent_id, action = fields.text("agent_id"), fields.action("action")
    context = fields.context("context")
    approval_id, call_id = fields.reference("approval_id"), fields.reference("call_id")
    run_id, dry_run = fields.reference("run_id"), fields.flag("dry_run")
    reason = fields.description("reason")
    fields.finish()
    return CheckRequest(
        agent_id, action, context or {}, approval_id, call_id, run_id, dry_run, reason, fields.canonical_text
    )
