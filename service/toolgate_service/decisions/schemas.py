"""Decisions in responses and exported files."""

from collections.abc import Iterable
from datetime import datetime

from pydantic import BaseModel, Field

from toolgate_service.core import strict_json
from toolgate_service.core.clock import wire
from toolgate_service.core.schemas import (
    EXAMPLE_AGENT_ID,
    EXAMPLE_APPROVAL_ID,
    EXAMPLE_ID,
    EXAMPLE_TIME,
    OrganizationId,
    example,
)
from toolgate_service.decisions.models import Decision
from toolgate_service.logs.schemas import Format, csv_rows, text_cell


class DecisionView(BaseModel):
    """Record of a decided check."""

    model_config = example(
        id=EXAMPLE_ID,
        created_at=EXAMPLE_TIME,
        organization_id=EXAMPLE_ID,
        environment="production",
        agent_id=EXAMPLE_AGENT_ID,
        agent_name="refund-bot",
        requested_agent=None,
        action="stripe.refund",
        run_id="run-7",
        call_id=None,
        key_id=EXAMPLE_ID,
        context_digest="a3f1c2d4e5b60718293a4b5c6d7e8f901122334455667788990011aabbccddee",
        policy_revision=42,
        permission_id=EXAMPLE_ID,
        rule_id=None,
        outcome="approval_required",
        reason_code="approval_required",
        approval_id=EXAMPLE_APPROVAL_ID,
    )

    id: str = Field(
        description="Id of the decision, a UUID: the value of the response header `X-Decision-ID`."
    )
    created_at: datetime = Field(description="Time of the decision (UTC), in milliseconds.")
    organization_id: OrganizationId
    environment: str = Field(description="Environment of the API key: `production` or `test`.")
    agent_id: str | None = Field(
        description="Id of the agent; null if the environment had no agent with the requested id."
    )
    agent_name: str | None = Field(description="Current name of the agent; null if there is no agent.")
    requested_agent: str | None = Field(
        description="First 64 characters of the requested agent id, if no agent has this id; otherwise null."
    )
    action: str = Field(description="Action of the call, such as `stripe.refund`.")
    run_id: str | None = Field(description="Identifier of the agent run, chosen by the client.")
    call_id: str | None = Field(description="Identifier of the call, chosen by the client.")
    key_id: str = Field(description="Id of the API key with which the check was sent.")
    context_digest: str = Field(
        description="SHA-256 digest of the canonical JSON of the context, as in approval requests. The API does not "
        "return the context itself."
    )
    policy_revision: int | None = Field(
        description=(
            "Revision number of the environment when the check was decided. Each change of an agent, key, "
            "permission, rule, budget or freeze increases it. Null if it is unknown."
        )
    )
    permission_id: str | None = Field(
        description="Id of the agent's permission for the action; null if there was none."
    )
    rule_id: str | None = Field(description="Id of the rule that decided; null if no rule did.")
    outcome: str = Field(description="The decision: `allowed`, `denied` or `approval_required`.")
    reason_code: str = Field(
        description="Code of the reason, as in the response header `X-Reason-Code`, for example `no_permission`."
    )
    approval_id: str | None = Field(
        description="Id of the approval request that the check created, found or consumed; otherwise null."
    )


EXPORTED_COLUMNS = tuple(DecisionView.model_fields)


def to_view(decision: Decision, agent_name: str | None) -> DecisionView:
    """Return a decision for responses of the API."""
    return DecisionView.model_validate(decision.model_dump() | {"agent_name": agent_name})


def file_header(form: Format) -> bytes:
    """Return the first line of an exported CSV file with the names of the columns; empty for JSON lines."""
    return csv_rows([EXPORTED_COLUMNS]) if form == "csv" else b""


def serialize(views: Iterable[DecisionView], form: Format) -> bytes:
    """Return decisions as lines of an exported file. Texts in CSV files are protected against formula injection."""
    if form == "jsonl":
        return "".join(f"{strict_json.dumps(view.model_dump())}\n" for view in views).encode()
    return csv_rows([_cell(getattr(view, name)) for name in EXPORTED_COLUMNS] for view in views)


def _cell(value: str | int | datetime | None) -> str:
    if isinstance(value, datetime):
        return wire(value)
    return "" if value is None else text_cell(str(value))
