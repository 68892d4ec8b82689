"""What an approval looks like on the wire (decisions §3, §5)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel

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


class ApprovalView(SdkApprovalView):
    """An approval as people see it."""

    agent_name: str
    permission_id: str
    digest: str
    decided_by: str | None
    consumed_at: datetime | None
    cancelled_at: datetime | None
    cancel_reason: str | None


class DenialBlockView(BaseModel):
    """An action that nobody is asked about for a while."""

    action: str
    blocked_until: datetime


class DecisionNote(Body):
    """The optional body of a decision."""

    model_config = example(note="Checked with the customer")

    note: Description | None = None
