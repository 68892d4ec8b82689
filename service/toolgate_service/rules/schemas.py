"""Request and response bodies of the routes of rules."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, WithJsonSchema

from toolgate_service.core.schemas import (
    ACTION,
    EXAMPLE_ID,
    EXAMPLE_TIME,
    EXAMPLE_USER_ID,
    WHOLE,
    WILDCARDS,
    Action,
    Body,
    Change,
    CreatedAt,
    Name,
    ResourceId,
    example,
    omit_default,
)
from toolgate_service.rules.expressions import MAX_LENGTH

#: maximum number of agents, actions or approvers of one rule
MAX_ITEMS = 100

Effect = Literal["forbid", "require_approval", "allow"]

_NAME = (
    "Name of the rule, unique in its environment. The gateway sends it to agents whose calls the rule denies."
)
_EFFECT = (
    "Effect on matching calls. `forbid` is stronger than `require_approval`, and both are stronger than `allow`, "
    "independent of the order of the rules."
)
_AGENTS = 'Agents to which the rule applies: ids or names, or `["*"]` for all agents, including agents created later.'
_ACTIONS = (
    "Actions to which the rule applies: exact names, prefixes followed by `*`, such as `stripe.*`, or `*`."
)
_WHEN = (
    "Condition in CEL over `args`, `action`, `agent`, `run` and `now`, such as `args.amount > 100`; null if the rule "
    "matches every call of its agents and actions. A condition that fails, for example because a field is missing, "
    "counts as true for `forbid` and `require_approval`, and as false for `allow`."
)
_APPROVAL = (
    "Terms of the approval, for the effect `require_approval`; null if the terms of the permission apply."
)
_QUORUM = "Number of different users who must approve, 1-10."
_TTL = "Time in seconds in which a request must be decided, at most 2,592,000 (30 days)."
_ENABLED = "False if the rule is ignored."


def _valid_pattern(action: str) -> str:
    if set(action[:-1]) & set(WILDCARDS) or action.endswith("?"):
        raise ValueError("must be an action, or a prefix and one '*' at its end, such as 'stripe.*'")
    return action


ActionPattern = Annotated[
    Action,
    AfterValidator(_valid_pattern),
    WithJsonSchema(ACTION | {"pattern": "^([!-)+->@-~]{1,255}|[!-)+->@-~]{0,254}\\*)$"}),
]
Agents = Annotated[list[Name], Field(min_length=1, max_length=MAX_ITEMS)]
Actions = Annotated[list[ActionPattern], Field(min_length=1, max_length=MAX_ITEMS)]
When = Annotated[
    str,
    Field(min_length=1, max_length=MAX_LENGTH),
    WithJsonSchema(
        {
            "type": "string",
            "format": "cel-expression",
            "minLength": 1,
            "maxLength": MAX_LENGTH,
            "examples": ["args.amount > 100"],
        }
    ),
]


class ApprovalTerms(Body):
    """Terms of the approval that a rule requires. Of several matching rules, the strictest value of each term applies."""

    model_config = example(quorum=2, ttl=3600)

    quorum: Annotated[int, Field(ge=1, le=10), WHOLE] | None = Field(
        default=None, description=f"{_QUORUM} By default, the number of the permission applies."
    )
    ttl: Annotated[int, Field(ge=1, le=30 * 24 * 3600), WHOLE] | None = Field(
        default=None, description=f"{_TTL} By default, the time of the permission or of the gateway applies."
    )
    approvers: Annotated[list[str], Field(min_length=1, max_length=MAX_ITEMS)] | None = Field(
        default=None,
        description="The only users who may approve: ids or e-mail addresses of members. By default, every admin and "
        "member may approve.",
    )


class NewRule(Body):
    """Request body of POST /api/rules."""

    model_config = example(
        name="Large refunds need two people",
        effect="require_approval",
        agents=["*"],
        actions=["stripe.*"],
        approval={"quorum": 2},
    )

    name: Name = Field(description=_NAME)
    effect: Effect = Field(description=_EFFECT)
    agents: Agents = Field(default=["*"], description=_AGENTS, json_schema_extra=omit_default)
    actions: Actions = Field(description=_ACTIONS)
    when: When | None = Field(default=None, description=_WHEN)
    approval: ApprovalTerms | None = Field(default=None, description=_APPROVAL)
    enabled: bool = Field(default=True, description=_ENABLED)


class RuleChange(Change):
    """Request body of PUT and PATCH /api/rules/{rule_id}. Fields that are missing in the request stay unchanged."""

    model_config = example(enabled=False)

    nullable = frozenset({"when", "approval"})

    name: Name | None = Field(default=None, description=_NAME)
    effect: Effect | None = Field(default=None, description=_EFFECT)
    agents: Agents | None = Field(default=None, description=_AGENTS)
    actions: Actions | None = Field(default=None, description=_ACTIONS)
    when: When | None = Field(default=None, description=_WHEN)
    approval: ApprovalTerms | None = Field(default=None, description=_APPROVAL)
    enabled: bool | None = Field(default=None, description=_ENABLED)


class ApprovalTermsView(BaseModel):
    """Terms of the approval that a rule requires, in responses of the API."""

    model_config = example(quorum=2, ttl=3600, approvers=[EXAMPLE_USER_ID])

    quorum: int | None = Field(
        description="Number of different users who must approve; null if the rule does not set a number."
    )
    ttl: int | None = Field(
        description="Time in seconds in which a request must be decided; null if the rule does not restrict this time."
    )
    approvers: Sequence[str] | None = Field(
        description="Ids of the only users who may approve; null if every admin and member may approve."
    )


class RuleView(BaseModel):
    """Rule, in responses of the API and in events."""

    model_config = example(
        id=EXAMPLE_ID,
        name="Large refunds need two people",
        effect="require_approval",
        agents=["*"],
        actions=["stripe.*"],
        when="args.amount > 100",
        approval={"quorum": 2, "ttl": 3600, "approvers": [EXAMPLE_USER_ID]},
        enabled=True,
        created_by=EXAMPLE_USER_ID,
        created_at=EXAMPLE_TIME,
        updated_at=None,
    )

    id: ResourceId
    name: str = Field(description=_NAME)
    effect: Effect = Field(description=_EFFECT)
    agents: Sequence[str] = Field(
        description='Ids of the agents to which the rule applies, or `["*"]` for all agents.'
    )
    actions: Sequence[str] = Field(description=_ACTIONS)
    when: str | None = Field(description=_WHEN)
    approval: ApprovalTermsView | None = Field(
        description="Terms of the approval; null if the effect is not `require_approval`."
    )
    enabled: bool = Field(description=_ENABLED)
    created_by: str = Field(description="Id of the user who created the rule, a UUID.")
    created_at: CreatedAt
    updated_at: datetime | None = Field(
        description="Time of the last change; null if the rule was not changed."
    )
