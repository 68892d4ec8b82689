"""Request and response bodies of the routes of freezes."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, WithJsonSchema

from toolgate_service.core.schemas import (
    ACTION,
    DESCRIPTION,
    EXAMPLE_ID,
    EXAMPLE_TIME,
    EXAMPLE_USER_ID,
    Action,
    Body,
    Description,
    example,
)

_AGENT = "Id of the agent whose calls are denied; null for the calls of all agents."
_ACTION = (
    "Action that is denied: an exact name, or a prefix and `*`, such as `stripe.*`; null for all actions."
)
_REASON = "Reason for the freeze. Agents receive this text with each denied call."


def _valid_pattern(action: str) -> str:
    if "?" in action or "*" in action[:-1] or action == "*":
        raise ValueError("must be an action, or a prefix and one '*' at its end, such as 'stripe.*'")
    return action


def _valid_reason(reason: str) -> str:
    if not reason.strip():
        raise ValueError("must contain a reason")
    return reason.strip()


ActionPattern = Annotated[
    Action,
    AfterValidator(_valid_pattern),
    WithJsonSchema(ACTION | {"pattern": "^([!-)+->@-~]{1,255}|[!-)+->@-~]{1,254}\\*)$"}),
]
Reason = Annotated[
    Description,
    AfterValidator(_valid_reason),
    WithJsonSchema(DESCRIPTION | {"minLength": 1, "pattern": r"\S"}),
]


class NewFreeze(Body):
    """Request body of POST /api/freeze. Without `agent_id` and `action`, all calls of the organization are denied."""

    model_config = example(
        agent_id="{agent_id}",
        action="db.*",
        reason="A migration dropped the wrong table",
    )

    agent_id: str | None = Field(default=None, description=_AGENT)
    action: ActionPattern | None = Field(default=None, description=_ACTION)
    reason: Reason = Field(description=_REASON)


class FreezeView(BaseModel):
    """Freeze, in responses of the API and in events. It is active while `lifted_at` is null."""

    model_config = example(
        id=EXAMPLE_ID,
        agent_id=None,
        action="db.*",
        reason="A migration dropped the wrong table",
        created_by=EXAMPLE_USER_ID,
        created_at=EXAMPLE_TIME,
        lifted_by=None,
        lifted_at=None,
    )

    id: str = Field(description="Id of the freeze.")
    agent_id: str | None = Field(description=_AGENT)
    action: str | None = Field(description=_ACTION)
    reason: str = Field(description=_REASON)
    created_by: str = Field(description="Id of the user who created the freeze.")
    created_at: datetime = Field(description="Time at which the freeze was created.")
    lifted_by: str | None = Field(description="Id of the user who lifted the freeze; null if it is active.")
    lifted_at: datetime | None = Field(
        description="Time at which the freeze was lifted; null if it is active."
    )
