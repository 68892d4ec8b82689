"""What the team looks like on the wire (decisions §3)."""

from datetime import datetime

from pydantic import BaseModel

from toolgate_service.web.bodies import Body, example
from toolgate_service.web.fields import Email, LinkToken, Password, Role


class NewInvitation(Body):
    """POST /api/team/invitations."""

    model_config = example(email="grace@example.com", role="member")

    email: Email
    role: Role


class RoleChange(Body):
    """PUT /api/team/{user_id}."""

    model_config = example(role="viewer")

    role: Role


class Acceptance(Body):
    """POST /auth/accept-invitation."""

    model_config = example(token="{invitation_token}", password="correct horse battery")  # noqa: S106 - nobody's

    token: LinkToken
    password: Password


class MemberView(BaseModel):
    """A user of the organization."""

    id: str
    email: str
    role: str
    created_at: datetime


class InvitationView(BaseModel):
    """An invitation that may still be accepted."""

    id: str
    email: str
    role: str
    invited_by: str
    created_at: datetime
    expires_at: datetime


class NewInvitationView(InvitationView):
    """The answer to an invitation. `link` is null where the gateway sent it by mail."""

    link: str | None


class TeamView(BaseModel):
    """GET /api/team. `invitations` is null for whoever is no admin."""

    users: list[MemberView]
    invitations: list[InvitationView] | None
