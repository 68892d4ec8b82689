"""Request and response bodies of the routes for registration, login and passwords."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from toolgate_service.core.schemas import Body, Email, LinkToken, Name, Password, example


class Registration(Body):
    """Request body of POST /auth/register."""

    model_config = example(
        email="ada@example.com",
        password="correct horse battery",  # noqa: S106 - an example for the documentation, not a password
        organization_name="Acme",
    )

    email: Email
    password: Password
    organization_name: Name


class Login(Body):
    """Request body of POST /auth/login.

    The minimum length of new passwords does not apply: a password that is too short is wrong, and is rejected for this
    reason.
    """

    model_config = example(email="ada@example.com", password="correct horse battery")  # noqa: S106 - an example for the documentation, not a password

    email: Annotated[str, Field(max_length=1000)]
    password: Annotated[str, Field(max_length=1000)]
    scope: Literal["full", "cli"] = "full"


class PasswordChange(Body):
    """Request body of POST /auth/password. The length limits for new passwords apply only to `new_password`."""

    model_config = example(
        current_password="correct horse battery",  # noqa: S106 - an example for the documentation, not a password
        new_password="correct horse battery staple",  # noqa: S106 - an example for the documentation, not a password
    )

    current_password: Annotated[str, Field(max_length=1000)]
    new_password: Password


class ResetRequest(Body):
    """Request body of POST /auth/password-reset."""

    model_config = example(email="ada@example.com")

    email: Email


class ResetConfirmation(Body):
    """Request body of POST /auth/password-reset/confirm."""

    model_config = example(token="{reset_token}", new_password="correct horse battery")  # noqa: S106 - an example for the documentation, not a password

    token: LinkToken
    new_password: Password


class Told(BaseModel):
    """Response with a message for the user, sent before the gateway processes the request in the background."""

    detail: str


class UserView(BaseModel):
    """User as shown in the responses of login and registration."""

    id: str
    email: str
    organization_id: str


class CurrentUser(UserView):
    """Response of GET /auth/me: the authenticated user."""

    created_at: datetime


class TokenView(BaseModel):
    """Session token and its user: the response to registration, login and a change of the password."""

    access_token: str
    token_type: Literal["bearer"] = "bearer"  # noqa: S105 - the name of the authentication scheme, not a secret
    user: UserView
