"""Request and response bodies of approval requests, and the functions that create the responses.

Users receive all data of an approval request. The agent receives neither votes nor the names of approvers.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.agents.models import Agent
from toolgate_service.approvals.models import (
    APPROVED,
    CONSUMED,
    PENDING,
    REPLACED,
    Approval,
    ApprovalVote,
    state_of,
)
from toolgate_service.core import strict_json
from toolgate_service.core.schemas import WHOLE, Body, Description, example
from toolgate_service.db.database import now


class SdkApprovalView(BaseModel):
    """Approval request in responses to its agent, without approvers and votes."""

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
    #: edited context, if an approver edited the context and the edited request was approved; otherwise null
    approved_context: Mapping[str, Any] | None


class VoteView(BaseModel):
    """Decision of one user about an approval request.

    Attributes:
        credential: Credential with which the user was authenticated. `kind` is `token`, `console` or `slack`. The other
            members are the id of the session, or the ids of the webhook, the Slack link and the Slack user; no member
            is a secret. Null unless the caller is an admin, and for votes from before version 0.2.
    """

    user_id: str
    decision: str
    note: str | None
    credential: Mapping[str, str] | None = None
    created_at: datetime


class ApprovalView(SdkApprovalView):
    """Approval request in responses to users.

    Attributes:
        reason: Reason for the call, as the agent sent it with its first check. The gateway does not verify it.
        waiting: True while the agent waits for the decision with a long poll.
        last_asked_at: Time at which the agent last sent a check or a long poll for this request; null for requests from
            before version 0.2.
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
    """Action of an agent that the gateway denies until `blocked_until`, because approvers repeatedly rejected it."""

    action: str
    blocked_until: datetime


#: maximum number of context fields that may differ in the calls of a temporary approval
MAX_FIELDS = 100


#: former names of the terms of a temporary approval, which are accepted until version 0.2
_FORMER_TERMS = {"uses": "max_uses", "seconds": "duration_seconds", "except_fields": "ignored_fields"}


def _add_former_terms(schema: dict[str, Any]) -> None:
    """Add the former names to the JSON Schema of `GrantTerms`: each term has one of its two names."""
    properties, required = schema["properties"], schema.pop("required")
    rules: list[dict[str, Any]] = []
    for former, name in _FORMER_TERMS.items():
        properties[former] = properties[name] | {"deprecated": True, "description": f"Use `{name}`."}
        if name in required:
            rules.append({"oneOf": [{"required": [name]}, {"required": [former]}]})
        else:
            rules.append({"not": {"required": [name, former]}})
    schema["allOf"] = rules


class GrantTerms(Body):
    """Terms of a temporary approval, which allows further calls with the same action and context.

    Attributes:
        max_uses: Number of further calls that are allowed.
        duration_seconds: Duration in seconds. It begins when enough approvers have voted.
        ignored_fields: Names of context fields whose values may differ. All other fields must equal those of the
            request, except that an `amount` may be smaller.
    """

    model_config = ConfigDict(json_schema_extra=_add_former_terms)

    max_uses: Annotated[int, Field(ge=1, le=1000), WHOLE]
    duration_seconds: Annotated[int, Field(ge=60, le=30 * 24 * 3600), WHOLE]
    ignored_fields: Annotated[list[str], Field(max_length=MAX_FIELDS)] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _read_former_names(cls, terms: object) -> object:
        if not isinstance(terms, dict):
            return terms
        for former, name in _FORMER_TERMS.items():
            # Neither value may win, because the larger one could allow calls that the approver did not intend.
            if former in terms and name in terms:
                raise ValueError(f"{former} is the former name of {name}; send only {name}")
        return {_FORMER_TERMS.get(name, name): value for name, value in terms.items()}


class DecisionNote(Body):
    """Optional request body for the rejection of an approval request."""

    model_config = example(note="Checked with the customer")

    note: Description | None = None


class ApprovalDecision(DecisionNote):
    """Optional request body for the approval of a request.

    Attributes:
        context: Complete edited context that is approved instead of the original one. It must not change redacted
            values.
        grant: Terms of a temporary approval (a grant), which the approver gives together with this approval. It allows
            further calls with the same action and context.
    """

    context: dict[str, Any] | None = None
    grant: GrantTerms | None = None


@dataclass(frozen=True, slots=True)
class _Related:
    """Rows of other tables that are needed to serialize approval requests.

    Attributes:
        names: Names of the agents, by agent id.
        votes: Votes by request id, in the order in which the users voted.
        successors: Requests with an edited context, by their own id.
    """

    names: Mapping[str, str]
    votes: Mapping[str, Sequence[ApprovalVote]]
    successors: Mapping[str, Approval]


async def serialize_approvals(
    session: AsyncSession, approvals: Sequence[Approval], *, credentials: bool = False
) -> list[ApprovalView]:
    """Return the response bodies for users of approval requests.

    `credentials` includes how each voter was authenticated, which only admins may see.
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
    """Return the response body for users of one approval request; see `serialize_approvals`."""
    return (await serialize_approvals(session, [approval], credentials=credentials))[0]


def _serialize_vote(vote: ApprovalVote, *, credentials: bool) -> VoteView:
    stored = vote.credential if credentials else None
    credential = None if stored is None else strict_json.loads_own(stored)
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
    }


def _approved_context(
    session: AsyncSession, approval: Approval, successors: Mapping[str, Approval]
) -> strict_json.Json:
    # If an approver edited the context, the responses for the original request and for its replacement both contain the
    # edited context.
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
