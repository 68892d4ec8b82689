"""Request and response bodies of the route with which the operator creates scratch organizations."""

from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field

from toolgate_service.core.schemas import EXAMPLE_ID, EXAMPLE_TIME, EXAMPLE_USER_ID, Body, example

#: minimum, default and maximum time in seconds after which a scratch organization expires
MIN_SECONDS: Final = 60
DEFAULT_SECONDS: Final = 600
MAX_SECONDS: Final = 3600
#: maximum number of users of a scratch organization
MAX_USERS: Final = 20

Role = Literal["admin", "member", "viewer"]


class NewScratchOrganization(Body):
    """Request body of POST /api/operator/scratch-organizations."""

    model_config = example(expires_in_seconds=600, users=["admin", "member", "viewer"])

    expires_in_seconds: Annotated[int, Field(ge=MIN_SECONDS, le=MAX_SECONDS)] = Field(
        default=DEFAULT_SECONDS, description="Time after which the gateway deletes the organization."
    )
    users: Annotated[list[Role], Field(min_length=1, max_length=MAX_USERS)] = Field(
        default=["admin"], description="Roles of the users. The first user must be an admin."
    )


class ScratchUser(BaseModel):
    """User of a scratch organization, with a session token."""

    id: str = Field(description="Id of the user.")
    email: str = Field(description="E-mail address of the user, to which no e-mail can be sent.")
    role: str = Field(description="Role of the user.")
    access_token: str = Field(description="Session token of the user.")


class ScratchOrganizationView(BaseModel):
    """New scratch organization, with the session tokens of its users."""

    model_config = example(
        id=EXAMPLE_ID,
        name="Scratch 6f1c2b",
        expires_at=EXAMPLE_TIME,
        users=[
            {
                "id": EXAMPLE_USER_ID,
                "email": "admin-1@6f1c2b.scratch.invalid",
                "role": "admin",
                "access_token": "eyJhbGciOiJIUzI1NiJ9.…",
            }
        ],
    )

    id: str = Field(description="Id of the organization.")
    name: str = Field(description="Name of the organization.")
    expires_at: datetime = Field(description="Time at which the gateway deletes the organization.")
    users: list[ScratchUser] = Field(description="Users in the order of the request.")
