"""Request and response bodies of the routes of the team."""

from datetime import datetime

from pydantic import BaseModel

from toolgate_service.core.schemas import Body, Email, LinkToken, Password, Role, example


class NewInvitation(Body):
    """Request body of POST /api/team/invitations."""

    model_config = example(email="grace@example.com", role="member")

    email: Email
    role: Role


class RoleChange(Body):
    """Request body of PUT /api/team/{user_id}."""

    model_config = example(role="viewer")

    role: Role


class Acceptance(Body):
    """Request body of POST /auth/accept-invitation."""

    model_config = example(token="{invitation_token}", password="correct horse battery")  # noqa: S106 - an example for the documentation, not a password

    token: LinkToken
    password: Password


class MemberView(BaseModel):
    """User of the organization, in responses of the team routes."""

    id: str
    email: str
    role: str
    created_at: datetime


class InvitationView(BaseModel):
    """Invitation that was not yet accepted or revoked and has not expired."""

    id: str
    email: str
    role: str
    invited_by: str
    created_at: datetime
    expires_at: datetime


class NewInvitationView(InvitationView):
    """New invitation. `link` is null if the gateway sent the invitation link by e-mail."""

    link: str | None


class TeamView(BaseModel):
    """Users and open invitations of the organization. `invitations` is null for callers who are not admins."""

    users: list[MemberView]
    invitations: list[InvitationView] | None
