"""Request and response bodies of the routes of the team."""

from datetime import datetime

from pydantic import BaseModel, Field

from toolgate_service.core.schemas import (
    EXAMPLE_EXPIRY,
    EXAMPLE_ID,
    EXAMPLE_TIME,
    EXAMPLE_USER_ID,
    Body,
    CreatedAt,
    Email,
    LinkToken,
    Password,
    ResourceId,
    Role,
    example,
)

#: description of the roles in the OpenAPI document
ROLES = "`admin` (everything), `member` (manages agents and decides requests) or `viewer` (only reads)"


class NewInvitation(Body):
    """Request body of POST /api/team/invitations."""

    model_config = example(email="grace@example.com", role="member")

    email: Email = Field(
        description="E-mail address of the new user, compared in lower case; at most 254 characters."
    )
    role: Role = Field(description=f"Role of the new user: {ROLES}.")


class RoleChange(Body):
    """Request body of PUT /api/team/{user_id}."""

    model_config = example(role="viewer")

    role: Role = Field(description=f"New role of the user: {ROLES}.")


class Acceptance(Body):
    """Request body of POST /auth/accept-invitation."""

    model_config = example(token="{invitation_token}", password="correct horse battery")  # noqa: S106 - an example for the documentation, not a password

    token: LinkToken = Field(description="One-time token from the invitation link; valid for 72 hours.")
    password: Password = Field(description="Password of the new user, 8-128 characters.")


class MemberView(BaseModel):
    """User of the organization, in responses of the team routes."""

    model_config = example(id=EXAMPLE_USER_ID, email="ada@example.com", role="admin", created_at=EXAMPLE_TIME)

    id: ResourceId
    email: str = Field(description="E-mail address with which the user logs in, in lower case.")
    role: str = Field(description=f"Role of the user: {ROLES}.")
    created_at: CreatedAt


class InvitationView(BaseModel):
    """Invitation that was not yet accepted or revoked and has not expired."""

    id: ResourceId
    email: str = Field(description="E-mail address of the invited user, in lower case.")
    role: str = Field(description=f"Role that the user will have: {ROLES}.")
    invited_by: str = Field(description="Id of the admin who sent the invitation, a UUID.")
    created_at: CreatedAt
    expires_at: datetime = Field(
        description="Time at which the invitation link expires, 72 hours after its creation."
    )


class NewInvitationView(InvitationView):
    """New invitation with its link."""

    model_config = example(
        id=EXAMPLE_ID,
        email="grace@example.com",
        role="member",
        invited_by=EXAMPLE_USER_ID,
        created_at=EXAMPLE_TIME,
        expires_at=EXAMPLE_EXPIRY,
        link=None,
    )

    link: str | None = Field(
        description="Invitation link with the one-time token; null if the gateway sent it by e-mail."
    )


class TeamView(BaseModel):
    """Users and open invitations of the organization."""

    model_config = example(
        users=[
            {
                "id": EXAMPLE_USER_ID,
                "email": "ada@example.com",
                "role": "admin",
                "created_at": EXAMPLE_TIME,
            }
        ],
        invitations=[],
    )

    users: list[MemberView] = Field(description="Users of the organization.")
    invitations: list[InvitationView] | None = Field(
        description="Open invitations; null if the caller is not an admin."
    )
