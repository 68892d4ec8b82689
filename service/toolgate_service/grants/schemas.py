"""What a grant looks like on the wire."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field

from toolgate_service.web.bodies import Body
from toolgate_service.web.fields import WHOLE

#: fields that may be un-ticked
MAX_FIELDS = 100


class GrantTerms(Body):
    """What an approver allows beside the request: the same call so many times and for so long.

    Attributes:
        uses: further calls.
        seconds: from the last approver's word on.
        except_fields: names in the context that may differ from call to call. All others stay equal; an `amount` may
            be smaller.
    """

    uses: Annotated[int, Field(ge=1, le=1000), WHOLE]
    seconds: Annotated[int, Field(ge=60, le=30 * 24 * 3600), WHOLE]
    except_fields: Annotated[list[str], Field(max_length=MAX_FIELDS)] = Field(default_factory=list)


class GrantVoteView(BaseModel):
    """One user's decision for a grant. Only admins see the credential that proved who it was."""

    user_id: str
    note: str | None
    credential: Mapping[str, str] | None = None
    created_at: datetime


class GrantView(BaseModel):
    """What is allowed for a while. `status` is `proposed`, `active`, `exhausted`, `expired` or `revoked`."""

    id: str
    agent_id: str
    agent_name: str
    action: str
    permission_id: str
    approval_id: str
    status: str
    uses: int
    uses_left: int
    seconds: int
    context: Mapping[str, Any]
    except_fields: Sequence[str]
    required_approvals: int
    votes: Sequence[GrantVoteView]
    created_at: datetime
    starts_at: datetime | None
    expires_at: datetime
    revoked_at: datetime | None
    revoked_by: str | None
