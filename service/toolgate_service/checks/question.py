"""What a check asks, read from its body (spec §4, decisions §4). Unknown fields are ignored: old and new must mix."""

from collections.abc import Mapping
from typing import NamedTuple

from toolgate_service import exact_json
from toolgate_service.canonical import canonical, digest
from toolgate_service.exact_json import Json
from toolgate_service.web.sdk_fields import SdkFields


class Question(NamedTuple):
    """May this agent do this action with this context?

    Attributes:
        agent_id: the agent, as the caller names it.
        action: the action identifier.
        context: the call's facts; empty when none were sent.
        approval_id: narrows the answer to one approval.
        call_id: the caller's own name of this one call.
        run_id: the caller's own name of the run it belongs to.
        dry_run: answer, change nothing.
        reason: why the agent wants to act, in its own words; only approvers read it.
        canonical_text: the context's canonical text, if it was written while the body was read.
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
        """Return what identifies this check among retries: the body as it came, or without a reason, which may differ."""
        if self.reason is None:
            return raw
        return exact_json.dumps(
            ["check", self.agent_id, self.action, self.digest, self.approval_id, self.call_id, self.run_id]
        ).encode()

    @property
    def canonical(self) -> str:
        """The context's canonical text."""
        return canonical(self.context) if self.canonical_text is None else self.canonical_text

    @property
    def digest(self) -> str:
        """The context's digest, to which an approval is bound."""
        return digest(self.canonical)


def read_question(body: Mapping[str, Json], raw: bytes | None = None) -> Question:
    """Read a check's body.

    Args:
        body: its members.
        raw: its text, which may spare a closer look at the context's size.

    Raises:
        FieldErrors: a field is missing or is not what it should be; all of them are named.
    """
    fields = SdkFields(body, raw)
    agent_id, action = fields.text("agent_id"), fields.action("action")
    context = fields.context("context")
    approval_id, call_id = fields.reference("approval_id"), fields.reference("call_id")
    run_id, dry_run = fields.reference("run_id"), fields.flag("dry_run")
    reason = fields.description("reason")
    fields.finish()
    return Question(
        agent_id, action, context or {}, approval_id, call_id, run_id, dry_run, reason, fields.canonical_text
    )
