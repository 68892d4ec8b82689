"""Request and response bodies of approval requests, and the functions that create the responses.

Users receive all data of an approval request. The agent receives neither votes nor the names of approvers.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.sessions import CREDENTIAL, read_credential
from toolgate_service.agents.models import Agent
from toolgate_service.approvals.models import (
    APPROVED,
    CONSUMED,
    NO_PERMISSION,
    PENDING,
    REPLACED,
    Approval,
    ApprovalVote,
    ruled_permission_id,
    state_of,
)
from toolgate_service.core import strict_json
from toolgate_service.core.schemas import (
    EXAMPLE_AGENT_ID,
    EXAMPLE_APPROVAL_ID,
    EXAMPLE_EXPIRY,
    EXAMPLE_ID,
    EXAMPLE_TIME,
    WHOLE,
    AgentId,
    Body,
    CreatedAt,
    Description,
    ResourceId,
    added_field,
    example,
)
from toolgate_service.db.database import now
from toolgate_service.grants.models import Grant

_EXAMPLE: dict[str, JsonValue] = {
    "id": EXAMPLE_APPROVAL_ID,
    "agent_id": EXAMPLE_AGENT_ID,
    "action": "stripe.refund",
    "status": "pending",
    "context": {"charge": "ch_1", "amount": 250},
    "run_id": "run-7",
    "call_id": None,
    "note": None,
    "created_at": EXAMPLE_TIME,
    "expires_at": EXAMPLE_EXPIRY,
    "decided_at": None,
    "replaced_by": None,
    "approved_context": None,
}


class SdkApprovalView(BaseModel):
    """Approval request in responses to its agent, without approvers and votes."""

    model_config = example(**_EXAMPLE)

    id: ResourceId
    agent_id: AgentId
    action: str = Field(description="Action of the call, such as `stripe.refund`.")
    status: str = Field(
        description="`pending`, `approved`, `denied` (rejected), `expired`, `cancelled`, `consumed` (the approved call "
        "was allowed) or `replaced` (approved with an edited context)."
    )
    context: Mapping[str, Any] = Field(
        description="Context of the call: the arguments that the agent's SDK sent. The SDK sends fingerprints of redacted values."
    )
    run_id: str | None = Field(description="Identifier of the agent run, chosen by the client.")
    call_id: str | None = Field(description="Identifier of the call, chosen by the client.")
    note: str | None = Field(description="Note of the approver who decided.")
    created_at: CreatedAt
    expires_at: datetime = Field(
        description=(
            "Time at which the request expires. Until this time, a pending request can be decided, and an approved "
            "request can be used."
        )
    )
    decided_at: datetime | None = Field(
        description="Time of the vote that decided the request; null while the request is pending."
    )
    replaced_by: str | None = Field(
        description="Id of the request with the edited context, a UUID, if `status` is `replaced`."
    )
    approved_context: Mapping[str, Any] | None = Field(
        description="Edited context, if an approver edited the context and the edited request was approved. Only a "
        "check with this context is allowed."
    )


class VoteView(BaseModel):
    """Decision of one user about an approval request."""

    user_id: str = Field(description="Id of the user, a UUID.")
    decision: str = Field(description="`approved` or `denied`.")
    note: str | None = Field(description="Note of the user.")
    credential: Mapping[str, str] | None = Field(default=None, description=CREDENTIAL)
    created_at: CreatedAt


class ApprovalView(SdkApprovalView):
    """Approval request in responses to users."""

    model_config = example(
        **_EXAMPLE,
        agent_name="refund-bot",
        permission_id=EXAMPLE_ID,
        rule_id=None,
        budget_id=None,
        approvers=None,
        digest="9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        reason="The customer returned the order",
        waiting=True,
        last_asked_at=EXAMPLE_TIME,
        required_approvals=1,
        separation_of_duties=False,
        votes=[],
        decided_by=None,
        consumed_at=None,
        cancelled_at=None,
        cancel_reason=None,
        replaces=None,
        grant_id=None,
    )

    agent_name: str = Field(description="Current name of the agent.")
    permission_id: str = Field(
        description="Id of the permission that covers the call, a UUID. If only rules require the approval, all "
        "digits of the id are 0."
    )
    rule_id: str | None = added_field(
        None,
        "Id of the rule that required the approval when the request was created; null if the permission required it.",
    )
    budget_id: str | None = added_field(
        None,
        "Id of the budget that did not cover the call when the request was created; null if no budget required the "
        "approval.",
    )
    approvers: Sequence[str] | None = added_field(
        None,
        (
            "If a rule restricts the approvers: the ids of the users who may approve. Null if every admin and "
            "member may approve."
        ),
    )
    digest: str = Field(
        description="SHA-256 digest of the context's canonical JSON, in hexadecimal. The approval is bound to this "
        "digest."
    )
    reason: str | None = Field(
        default=None,
        description="Reason for the call, as the agent sent it with its first check. The gateway does not verify it.",
    )
    waiting: bool = Field(
        default=False, description="True while the agent waits for the decision with a long poll."
    )
    last_asked_at: datetime | None = Field(
        default=None,
        description="Time at which the agent last sent a check or a long poll for this request; null for requests from "
        "before version 0.2.",
    )
    required_approvals: int = Field(description="Number of different users who must approve the request.")
    separation_of_duties: bool = Field(
        default=False,
        description="True if the creators of the agent and of the permission cannot approve the request.",
    )
    votes: Sequence[VoteView] = Field(description="Votes, oldest first.")
    decided_by: str | None = Field(description="Id of the user whose vote decided the request, a UUID.")
    consumed_at: datetime | None = Field(
        description="Time at which the gateway allowed the approved call to run, and the approval was consumed."
    )
    cancelled_at: datetime | None = Field(description="Time at which the request was cancelled.")
    cancel_reason: str | None = Field(description="Reason for the cancellation.")
    replaces: str | None = Field(
        description="Id of the original request, a UUID, if this request has an edited context."
    )
    grant_id: str | None = Field(
        description="Id of the temporary approval that was given with this request, a UUID."
    )


class DenialBlockView(BaseModel):
    """Action of an agent that the gateway denies until `blocked_until`, because approvers repeatedly rejected it."""

    model_config = example(action="stripe.refund", blocked_until=EXAMPLE_EXPIRY)

    action: str = Field(
        description="Blocked action: the gateway denies the agent's checks of this action until `blocked_until`."
    )
    blocked_until: datetime = Field(description="Time at which the block ends by itself.")


#: maximum number of context fields that may differ in the calls of a temporary approval
MAX_FIELDS = 100


#: former names of the terms of a temporary approval, which are accepted until version 0.2
_FORMER_TERMS = {"uses": "max_uses", "seconds": "duration_seconds", "except_fields": "ignored_fields"}


def _add_former_terms(schema: dict[str, Any]) -> None:
    """Add the former names to the JSON Schema of `GrantTerms`. A body may contain only one of a term's two names."""
    properties, required = schema["properties"], schema.pop("required")
    rules: list[dict[str, Any]] = []
    for former, name in _FORMER_TERMS.items():
        properties[former] = properties[name] | {
            "deprecated": True,
            "description": f"Former name of `{name}`, accepted until version 0.2.",
        }
        if name in required:
            rules.append({"oneOf": [{"required": [name]}, {"required": [former]}]})
        else:
            rules.append({"not": {"required": [name, former]}})
    schema["allOf"] = rules


class GrantTerms(Body):
    """Terms of a temporary approval, which allows further calls with the same action and context."""

    model_config = ConfigDict(json_schema_extra=_add_former_terms)

    max_uses: Annotated[int, Field(ge=1, le=1000), WHOLE] = Field(
        description="Number of further calls that are allowed, 1-1,000."
    )
    duration_seconds: Annotated[int, Field(ge=60, le=30 * 24 * 3600), WHOLE] = Field(
        description="Duration in seconds, 60-2,592,000 (30 days). The duration begins when enough approvers have "
        "voted."
    )
    ignored_fields: Annotated[list[str], Field(max_length=MAX_FIELDS)] = Field(
        default_factory=list,
        description="Names of at most 100 context fields whose values may differ. All other fields must equal those of "
        "the request, except that an `amount` may be smaller.",
    )

    @model_validator(mode="before")
    @classmethod
    def _read_former_names(cls, terms: object) -> object:
        if not isinstance(terms, dict):
            return terms
        for former, name in _FORMER_TERMS.items():
            # Reject the body instead of choosing a value, because the value that the approver did not intend could
            # allow further calls.
            if former in terms and name in terms:
                raise ValueError(f"{former} is the former name of {name}; send only {name}")
        return {_FORMER_TERMS.get(name, name): value for name, value in terms.items()}


class DecisionNote(Body):
    """Optional request body for the rejection of an approval request."""

    model_config = example(note="Checked with the customer")

    note: Description | None = Field(
        default=None, description="Note for the agent and the log, at most 1,000 characters."
    )


class ApprovalDecision(DecisionNote):
    """Optional request body for the approval of a request."""

    context: dict[str, Any] | None = Field(
        default=None,
        description="Complete edited context that is approved instead of the original one. It must not change redacted "
        "values.",
    )
    grant: GrantTerms | None = Field(
        default=None,
        description="Terms of a temporary approval (a grant), which the approver gives together with this approval. It "
        "cannot be combined with `context`.",
    )


@dataclass(frozen=True, slots=True)
class _Related:
    """Rows of other tables that are needed to serialize approval requests.

    Attributes:
        names: Names of the agents, by agent id.
        votes: Votes by request id, in the order in which the users voted.
        successors: Requests with an edited context that replaced other requests, by the id of the replacement.
    """

    names: Mapping[str, str]
    votes: Mapping[str, Sequence[ApprovalVote]]
    successors: Mapping[str, Approval]


async def serialize_approvals(
    session: AsyncSession, approvals: Sequence[Approval], *, credentials: bool = False
) -> list[ApprovalView]:
    """Return the response bodies that users receive for approval requests.

    If `credentials` is True, each vote contains how the voter was authenticated, which only admins may see.
    """
    related = await _load_related(session, approvals)
    return [
        ApprovalView.model_validate(
            _common_fields(session, approval, related.successors)
            | {
                "agent_name": related.names[approval.agent_id],
                "votes": [
                    _serialize_vote(vote, credentials=credentials) for vote in related.votes[approval.id]
                ],
            }
        )
        for approval in approvals
    ]


async def serialize_approval(
    session: AsyncSession, approval: Approval, *, credentials: bool = False
) -> ApprovalView:
    """Return the response body that users receive for one approval request; see `serialize_approvals`."""
    return (await serialize_approvals(session, [approval], credentials=credentials))[0]


def _serialize_vote(vote: ApprovalVote, *, credentials: bool) -> VoteView:
    credential = read_credential(vote.credential) if credentials else None
    return VoteView.model_validate(vote.model_dump() | {"credential": credential})


async def serialize_for_agent(session: AsyncSession, approval: Approval) -> SdkApprovalView:
    """Return the response body of an approval request for the agent that sent it."""
    return SdkApprovalView.model_validate(
        _common_fields(session, approval, await _load_successors(session, [approval]))
    )


def _common_fields(
    session: AsyncSession, approval: Approval, successors: Mapping[str, Approval]
) -> dict[str, Any]:
    moment = now(session)
    status = state_of(approval, moment)
    return approval.model_dump() | {
        "status": status,
        "waiting": status == PENDING
        and approval.waiting_until is not None
        and approval.waiting_until > moment,
        "context": strict_json.loads_own(approval.context),
        "approved_context": _approved_context(session, approval, successors),
        "run_id": approval.run_id or None,
        "call_id": approval.call_id or None,
        "separation_of_duties": bool(approval.separation_of_duties),
        "permission_id": shown_permission_id(approval),
        "approvers": None if approval.approvers is None else json.loads(approval.approvers),
    }


def shown_permission_id(of: Approval | Grant) -> str:
    """Return the id of the permission that covers a request or a temporary approval; `NO_PERMISSION` if none does."""
    return NO_PERMISSION if of.permission_id == ruled_permission_id(of.action) else of.permission_id


def _approved_context(
    session: AsyncSession, approval: Approval, successors: Mapping[str, Approval]
) -> strict_json.Json:
    # If an approver edited the context, `edited` is the request with the edited context, even if `approval` is the
    # original request. The responses for both requests contain the edited context after it was approved.
    edited = successors.get(approval.replaced_by or "", approval)
    if edited.replaces is None or state_of(edited, now(session)) not in {APPROVED, CONSUMED}:
        return None
    return strict_json.loads_own(edited.context)


async def _load_related(session: AsyncSession, approvals: Sequence[Approval]) -> _Related:
    agents_query = select(Agent.id, Agent.name).where(
        col(Agent.id).in_({approval.agent_id for approval in approvals})
    )
    votes_query = (
        select(ApprovalVote)
        .where(col(ApprovalVote.approval_id).in_([approval.id for approval in approvals]))
        .order_by(col(ApprovalVote.created_at), col(ApprovalVote.user_id))
    )
    votes: defaultdict[str, list[ApprovalVote]] = defaultdict(list)
    for vote in (await session.exec(votes_query)).all():
        votes[vote.approval_id].append(vote)
    names = dict((await session.exec(agents_query)).all())
    return _Related(names, votes, await _load_successors(session, approvals))


async def _load_successors(session: AsyncSession, approvals: Sequence[Approval]) -> Mapping[str, Approval]:
    ids = [approval.replaced_by for approval in approvals if approval.status == REPLACED]
    if not ids:
        return {}
    found = (await session.exec(select(Approval).where(col(Approval.id).in_(ids)))).all()
    return {approval.id: approval for approval in found}
