"""Request and response bodies of the routes of agents and their API keys."""

from typing import Literal

from pydantic import BaseModel, Field

from toolgate_service.core.schemas import (
    EXAMPLE_AGENT_ID,
    EXAMPLE_ID,
    EXAMPLE_TIME,
    EXAMPLE_USER_ID,
    NAME_RULE,
    AgentId,
    AgentName,
    Body,
    Change,
    CreatedAt,
    Description,
    ResourceId,
    example,
    omit_default,
)


class AgentView(BaseModel):
    """Agent in responses of the API."""

    model_config = example(
        id=EXAMPLE_AGENT_ID,
        name="refund-bot",
        description="Refunds orders that customers return",
        status="active",
        created_at=EXAMPLE_TIME,
        created_by=EXAMPLE_USER_ID,
    )

    id: ResourceId
    name: str = Field(description="Name of the agent. Several agents may have the same name.")
    description: str | None = Field(description="Description of the agent, for people.")
    status: str = Field(description="`active`, or `inactive` for a disabled agent, whose checks are denied.")
    created_at: CreatedAt
    created_by: str = Field(description="Id of the user who created the agent, a UUID.")


class NewAgent(Body):
    """Request body of POST /api/agents."""

    model_config = example(name="refund-bot", description="Refunds orders that customers return")

    name: AgentName = Field(description=f"Name of the agent: {NAME_RULE}. Kebab-case is recommended.")
    description: Description | None = Field(
        default=None, description="Description of the agent, for people: at most 1,000 characters."
    )


class AgentChange(Change):
    """Request body of PUT /api/agents/{agent_id}.

    Fields that are missing in the request stay unchanged. The value null removes the description.
    """

    model_config = example(status="inactive")

    nullable = frozenset({"description"})

    name: AgentName | None = Field(default=None, description=f"New name of the agent: {NAME_RULE}.")
    description: Description | None = Field(
        default=None, description="New description, at most 1,000 characters; null removes the description."
    )
    status: Literal["active", "inactive"] | None = Field(
        default=None,
        description="`inactive` disables the agent: its checks are denied, and its approval requests are cancelled. "
        "`active` enables it.",
    )


class NewAgentKey(Body):
    """Request body of POST /api/agents/{agent_id}/keys. The body can be omitted."""

    model_config = example(advisory=True)

    advisory: bool = Field(
        default=False,
        description="True for a key whose checks and AuthZEN evaluations are dry runs: they reserve no budgets, consume "
        "no approvals and create no approval requests. `POST /sdk/check` then needs `dry_run`, and the key cannot store "
        "log entries or cancel approval requests.",
        json_schema_extra=omit_default,
    )


class AgentKeyView(BaseModel):
    """API key of a single agent. `api_key` is shown in full to admins and masked for other users."""

    model_config = example(
        id=EXAMPLE_ID,
        agent_id=EXAMPLE_AGENT_ID,
        api_key="ak_…x7q2",
        advisory=False,
        created_at=EXAMPLE_TIME,
        created_by=EXAMPLE_USER_ID,
    )

    id: ResourceId
    agent_id: AgentId
    api_key: str = Field(
        description="The API key: in full for admins, masked (`ak_…` and the last four characters) for other users."
    )
    advisory: bool = Field(
        description="True if the key is advisory: checks and AuthZEN evaluations with this key are dry runs, and "
        "requests with this key cannot change anything."
    )
    created_at: CreatedAt
    created_by: str | None = Field(description="Id of the user who created the key, a UUID.")
