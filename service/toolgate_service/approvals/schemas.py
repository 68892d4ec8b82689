"""What an approval looks like on the wire (decisions §3, §5)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from toolgate_service.grants.schemas import GrantTerms
from toolgate_service.web.bodies import Body, example
from toolgate_service.web.fields import Description


class SdkApprovalView(BaseModel):
    """An approval as the asking agent sees it: nothing says who decides."""

    id: str
    agent_id: str
    action: str
    status: str
    context: Mapping[str, Any]
    run_id: str | None
    call_id: str | None
    note: str | None
    created_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    replaced_by: str | None
    #: what an approver made of the context, once that is approved
    approved_context: Mapping[str, Any] | None


class VoteView(BaseModel):
    """One user's decision about a request.

    Attributes:
        credential: what proved who it was: `kind` is `token`, `console` or `slack`; ids of the session, or of the
            webhook, link and Slack user, never a secret. Only admins see it; null also for votes before version 0.2.
    """

    user_id: str
    decision: str
    note: str | None
    credential: Mapping[str, str] | None = None
    created_at: datetime


class ApprovalView(SdkApprovalView):
    """An approval as people see it.

    Attributes:
        reason: text that the agent sent with its first check. The gateway does not verify it.
        waiting: whether a call waits for the decision at this moment.
        last_asked_at: time of the last check or long poll for this request; null for requests before version 0.2.
    """

    agent_name: str
    permission_id: str
    digest: str
    reason: str | None = None
    waiting: bool = False
    last_asked_at: datetime | None = None
    required_approvals: int
    separation_of_duties: bool = False
    votes: Sequence[VoteView]
    decided_by: str | None
    consumed_at: datetime | None
    cancelled_at: datetime | None
    cancel_reason: str | None
    replaces: str | None
    grant_id: str | None


class DenialBlockView(BaseModel):
    """An action that nobody is asked about for a while."""

    action: str
    blocked_until: datetime


class DecisionNote(Body):
    """The optional body of a denial."""

    model_config = example(note="Checked with the customer")

    note: Description | None = None


class ApprovalDecision(DecisionNote):
    """The optional body of an approval.

    Attributes:
        context: the whole context as it may happen instead; hidden fields stay as they were asked.
        grant: allow the same for a while.
    """

    context: dict[str, Any] | None = None
    grant: GrantTerms | None = None
