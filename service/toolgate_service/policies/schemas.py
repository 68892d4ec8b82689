"""Request and response bodies of the routes of policies."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, JsonValue, WithJsonSchema

from toolgate_service.core.schemas import (
    CONTEXT,
    EXAMPLE_AGENT_ID,
    EXAMPLE_ID,
    EXAMPLE_TIME,
    EXAMPLE_USER_ID,
    Action,
    AgentId,
    Body,
    CreatedAt,
    Description,
    Moment,
    ResourceId,
    example,
)
from toolgate_service.policies.document import VERSION, PolicyDocument

#: maximum number of calls that one request evaluates
MAX_CALLS = 100

ResourceName = Literal["agent", "permission", "rule", "budget"]
Operation = Literal["create", "update", "delete"]
OutcomeName = Literal["denied", "approval_required", "allowed"]

EXAMPLE_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
EXAMPLE_POLICY: dict[str, JsonValue] = {
    "version": VERSION,
    "agents": [{"name": "refund-bot"}],
    "rules": [],
    "budgets": [],
}

_BASE = "Digest of the current policy for which the plan was made, from `POST /api/policy/plan` or `GET /api/policy`."
_MESSAGE = "Reason for the change, which the list of revisions shows: at most 1,000 characters."
_DIGEST = "SHA-256 digest of the meaning of the policy. It does not depend on the order of lists."
_CHANGES = "Differences between the two policies, in the order agents, permissions, rules, budgets."


class FieldChange(BaseModel):
    """Field of an item that differs between two policies."""

    field: str = Field(description="Name of the field.")
    before: Any = Field(description="Value in the current policy; null for a new item.")
    after: Any = Field(description="Value in the candidate policy; null for a deleted item.")


class ChangeView(BaseModel):
    """Difference between two policies."""

    model_config = example(
        resource="permission",
        operation="update",
        name="refund-bot stripe.refund",
        fields=[{"field": "max_amount", "before": 50, "after": 80}],
    )

    resource: ResourceName = Field(description="Kind of the item that differs.")
    operation: Operation = Field(description="Change to the item when the candidate policy is applied.")
    name: str = Field(
        description="Name of the agent, rule or budget; for a permission, the agent's name and the action."
    )
    fields: Sequence[FieldChange] = Field(
        description="Fields that differ; for a new or deleted item, all of its fields."
    )


class PolicyState(BaseModel):
    """Current policy of an environment."""

    model_config = example(policy=EXAMPLE_POLICY, digest=EXAMPLE_DIGEST, revision=3)

    policy: PolicyDocument = Field(description="Current agents, permissions, rules and budgets.")
    digest: str = Field(description=_DIGEST)
    revision: int | None = Field(
        description="Number of the latest revision; null if no revision exists, or if the environment was changed "
        "after the latest revision."
    )


class Candidate(Body):
    """Request body of POST /api/policy/plan."""

    model_config = example(policy=EXAMPLE_POLICY)

    policy: PolicyDocument = Field(description="Complete policy. Items that it does not contain are deleted.")
    base: Annotated[str, Field(max_length=64)] | None = Field(
        default=None,
        description=(
            "Digest of the current policy from an earlier plan. The request fails if the policy has changed since "
            "that plan."
        ),
    )


class PolicyPlan(BaseModel):
    """Differences that applying a candidate makes."""

    model_config = example(
        base=EXAMPLE_DIGEST, digest=EXAMPLE_DIGEST, changes=[], warnings=[], policy=EXAMPLE_POLICY
    )

    base: str = Field(description="Digest of the current policy. `POST /api/policy/apply` requires it.")
    digest: str = Field(description="Digest of the candidate policy.")
    changes: Sequence[ChangeView] = Field(description=_CHANGES)
    warnings: Sequence[str] = Field(
        description=(
            "Consequences of applying the candidate policy that cannot be undone by restoring an earlier revision, "
            "such as revoked API keys."
        )
    )
    policy: PolicyDocument = Field(description="Current policy.")


class PolicyApply(Body):
    """Request body of POST /api/policy/apply."""

    model_config = example(policy=EXAMPLE_POLICY, base="{policy_base}", message="Raise the refund limit")

    policy: PolicyDocument = Field(description="Complete policy. Items that it does not contain are deleted.")
    base: Annotated[str, Field(max_length=64)] = Field(description=_BASE)
    message: Description | None = Field(default=None, description=_MESSAGE)


class RevisionRestore(Body):
    """Request body of POST /api/policy/revisions/{revision_id}/restore."""

    model_config = example(base="{policy_base}", message="The new limit was too high")

    base: Annotated[str, Field(max_length=64)] = Field(description=_BASE)
    message: Description | None = Field(default=None, description=_MESSAGE)


class ShadowPromotion(Body):
    """Request body of POST /api/policy/shadow/promote."""

    model_config = example(base="{policy_base}")

    base: Annotated[str, Field(max_length=64)] = Field(description=_BASE)


_NUMBER = "Number of the revision in its environment, counted from 1."
_RESTORES = "Number of the earlier revision that was restored; null if a document was applied."


class RevisionSummary(BaseModel):
    """Revision of the policy of an environment, in lists."""

    model_config = example(
        id=EXAMPLE_ID,
        number=3,
        digest=EXAMPLE_DIGEST,
        message="Raise the refund limit",
        restores=None,
        created_by=EXAMPLE_USER_ID,
        created_at=EXAMPLE_TIME,
    )

    id: ResourceId
    number: int = Field(description=_NUMBER)
    digest: str = Field(description=_DIGEST)
    message: str = Field(description=_MESSAGE)
    restores: int | None = Field(description=_RESTORES)
    created_by: str = Field(description="Id of the user who applied the revision, a UUID.")
    created_at: CreatedAt


class RevisionView(RevisionSummary):
    """Revision with its policy and the changes since the revision before."""

    model_config = example(
        id=EXAMPLE_ID,
        number=3,
        digest=EXAMPLE_DIGEST,
        message="Raise the refund limit",
        restores=None,
        created_by=EXAMPLE_USER_ID,
        created_at=EXAMPLE_TIME,
        policy=EXAMPLE_POLICY,
        changes=[],
    )

    policy: PolicyDocument = Field(description="Policy of this revision.")
    changes: Sequence[ChangeView] = Field(description=_CHANGES)


class PolicyApplied(BaseModel):
    """Result of applying a policy."""

    model_config = example(applied=True, revision=4, changes=[])

    applied: bool = Field(description="False if the environment already had exactly this policy.")
    revision: int | None = Field(
        description="Number of the revision with this policy; null if nothing was applied and no revision exists."
    )
    changes: Sequence[ChangeView] = Field(description=_CHANGES)


class PolicyCall(Body):
    """Call for which a policy is evaluated."""

    model_config = example(agent="refund-bot", action="stripe.refund", context={"amount": 80})

    agent: Annotated[str, Field(min_length=1, max_length=100)] = Field(description="Name or id of the agent.")
    action: Action = Field(description="Action of the call.")
    context: Annotated[dict[str, Any], WithJsonSchema(CONTEXT)] = Field(
        default_factory=dict, description="Arguments of the call."
    )
    run_id: Annotated[str, Field(min_length=1, max_length=255)] | None = Field(
        default=None, description="Identifier of the agent run."
    )
    now: Moment | None = Field(
        default=None,
        description="Time of the call, which conditions read as `now`; null for the current time.",
    )


class PolicyEvaluation(Body):
    """Request body of POST /api/policy/evaluate."""

    model_config = example(
        policy=EXAMPLE_POLICY,
        calls=[{"agent": "refund-bot", "action": "stripe.refund", "context": {"amount": 80}}],
    )

    policy: PolicyDocument | None = Field(
        default=None, description="Policy that decides the call; null for the current policy."
    )
    calls: Annotated[list[PolicyCall], Field(min_length=1, max_length=MAX_CALLS)] = Field(
        description="Calls, at most 100."
    )


class JudgementTermsView(BaseModel):
    """Terms of the approval that a call needs."""

    quorum: int = Field(description="Number of different users who must approve.")
    ttl: int | None = Field(
        description="Time in seconds in which a request must be decided; null if only the gateway's setting limits "
        "this time."
    )
    approvers: Sequence[str] | None = Field(
        description="E-mail addresses of the only users who may approve; null if every admin and member may approve."
    )
    separation_of_duties: bool = Field(
        description="True if the creators of the agent and of the permission cannot approve."
    )


class JudgementView(BaseModel):
    """Result of a policy for a call. It does not depend on approvals, freezes and totals of budgets."""

    model_config = example(
        outcome="denied",
        reason_code="amount_exceeded",
        reason="Amount 80 is above the maximum of 50 for action 'stripe.refund'",
        rule=None,
        approval=None,
    )

    outcome: OutcomeName = Field(description="Result for the call.")
    reason_code: str = Field(description="Code of the result, as in the header `X-Reason-Code` of a check.")
    reason: str | None = Field(description="Reason for the agent; null if the call is allowed.")
    rule: str | None = Field(description="Name of the rule that decided; null if no rule did.")
    approval: JudgementTermsView | None = Field(
        description="Terms of the approval; null if the outcome is not `approval_required`."
    )


_SHADOW_MESSAGE = (
    "Reason for the change. If the shadow policy is promoted, this is the message of the new revision."
)


class NewShadow(Body):
    """Request body of PUT /api/policy/shadow."""

    model_config = example(policy=EXAMPLE_POLICY, message="Raise the refund limit")

    policy: PolicyDocument = Field(
        description="Complete shadow policy. The gateway compares the results of this "
        "policy with its decisions."
    )
    message: Description | None = Field(default=None, description=_SHADOW_MESSAGE)


class ShadowCounts(BaseModel):
    """Results of the shadow policy for the checks since it began. Dry runs are not included."""

    unchanged: int = Field(description="Checks with the same result under the shadow policy.")
    newly_allowed: int = Field(description="Checks that the shadow policy allows without an approval.")
    newly_held: int = Field(description="Checks for which the shadow policy requires an approval.")
    newly_denied: int = Field(description="Checks that the shadow policy denies.")
    not_replayable: int = Field(
        description="Checks whose result depends on approvals or on the totals of budgets."
    )


class ShadowSample(BaseModel):
    """Check for which the shadow policy has another result than the gateway."""

    decision_id: str = Field(description="Id of the record in the decision log.")
    agent_id: str = Field(description="Id of the agent.")
    action: str = Field(description="Action of the call.")
    difference: Literal["newly_allowed", "newly_held", "newly_denied"] = Field(
        description="How the result differs."
    )
    reason: str | None = Field(
        description="Reason for the agent under the shadow policy; null if it allows the call."
    )
    created_at: CreatedAt


class ShadowView(BaseModel):
    """Shadow policy of an environment, and its results so far."""

    model_config = example(
        id=EXAMPLE_ID,
        policy=EXAMPLE_POLICY,
        digest=EXAMPLE_DIGEST,
        message="Raise the refund limit",
        created_by=EXAMPLE_USER_ID,
        created_at=EXAMPLE_TIME,
        counts={
            "unchanged": 970,
            "newly_allowed": 30,
            "newly_held": 0,
            "newly_denied": 0,
            "not_replayable": 2,
        },
        samples=[],
    )

    id: str = Field(description="Id of the shadow policy. The id changes if the shadow policy is replaced.")
    policy: PolicyDocument = Field(
        description="The shadow policy, which the gateway compares with its decisions."
    )
    digest: str = Field(description=_DIGEST)
    message: str = Field(description=_SHADOW_MESSAGE)
    created_by: str = Field(description="Id of the user who started the shadow policy, a UUID.")
    created_at: CreatedAt
    counts: ShadowCounts = Field(description="Results of the comparison; they may be about a second old.")
    samples: Sequence[ShadowSample] = Field(
        description="Checks with a different result under the shadow policy, newest first: at most 100 of each kind "
        "of difference."
    )


class SuggestionView(BaseModel):
    """Candidate policy that allows the approved calls of an agent for an action. It is not applied."""

    model_config = example(
        agent="refund-bot",
        agent_id=EXAMPLE_AGENT_ID,
        action="stripe.refund",
        approvals=14,
        first_at=EXAMPLE_TIME,
        last_at=EXAMPLE_TIME,
        condition="size(args) == 1 && has(args.amount) && args.amount >= 5 && args.amount <= 80",
        policy=EXAMPLE_POLICY,
        changes=[],
        allowed=14,
    )

    agent: str = Field(description="Name of the agent.")
    agent_id: AgentId
    action: str = Field(description="Action of the calls.")
    approvals: int = Field(description="Number of requests in the period that people approved.")
    first_at: datetime = Field(description="Time of the first approved request in the period.")
    last_at: datetime = Field(description="Time of the last approved request in the period.")
    condition: str = Field(
        description="Condition that covers the approved calls. It requires the same arguments, each with one of the "
        "approved values. If an argument has more than 10 approved numbers, the condition allows every number from "
        "the smallest to the largest."
    )
    policy: PolicyDocument = Field(
        description="Complete candidate policy: the current policy with the suggested changes."
    )
    changes: Sequence[ChangeView] = Field(description=_CHANGES)
    allowed: int = Field(
        description="Number of approved calls that the candidate policy allows without an approval. The number is "
        "equal to `approvals`."
    )


class UnsuggestedView(BaseModel):
    """Agent and action with approved requests for which there is no suggestion."""

    agent: str = Field(description="Name of the agent.")
    agent_id: AgentId
    action: str = Field(description="Action of the calls.")
    approvals: int = Field(description="Number of requests in the period that people approved.")
    reason: str = Field(description="Reason why there is no suggestion.")


class SuggestionList(BaseModel):
    """Suggestions from the approval requests of a period."""

    model_config = example(since=EXAMPLE_TIME, until=EXAMPLE_TIME, suggestions=[], unsuggested=[])

    since: datetime = Field(description="Beginning of the period.")
    until: datetime = Field(description="End of the period.")
    suggestions: Sequence[SuggestionView] = Field(
        description="Suggestions, at most 20: those with the most approved requests first."
    )
    unsuggested: Sequence[UnsuggestedView] = Field(
        description="Agents and actions with enough approved requests, but without a suggestion."
    )
