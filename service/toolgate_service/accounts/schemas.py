"""Request and response bodies of accounts."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from toolgate_service.core.schemas import Body, Email, LinkToken, Name, Password, example


class Registration(Body):
    """Body of POST /auth/register."""

    model_config = example(
        email="ada@example.com",
        password="correct horse battery",  # noqa: S106 - an example
        organization_name="Acme",
    )

    email: Email
    password: Password
    organization_name: Name


class Login(Body):
    """Body of POST /auth/login. No minimum length of the password is required: a wrong one is rejected anyway."""

    model_config = example(email="ada@example.com", password="correct horse battery")  # noqa: S106 - an example

    email: Annotated[str, Field(max_length=1000)]
    password: Annotated[str, Field(max_length=1000)]
    scope: Literal["full", "cli"] = "full"


class PasswordChange(Body):
    """Body of POST /auth/password. Only the new password must have a valid length."""

    model_config = example(
        current_password="correct horse battery",  # noqa: S106 - an example
        new_password="correct horse battery staple",  # noqa: S106 - an example
    )

    current_password: Annotated[str, Field(max_length=1000)]
    new_password: Password


class ResetRequest(Body):
    """Body of POST /auth/password-reset."""

    model_config = example(email="ada@example.com")

    email: Email


class ResetConfirmation(Body):
    """Body of POST /auth/password-reset/confirm."""

    model_config = example(token="{reset_token}", new_password="correct horse battery")  # noqa: S106 - an example

    token: LinkToken
    new_password: Password


class Told(BaseModel):
    """Response to a request that the gateway processes later, with a message for the user."""

    detail: str


class UserView(BaseModel):
    """User in the responses of login and registration."""

    id: str
    email: str
    organization_id: str


class CurrentUser(UserView):
    """Response of GET /auth/me: the authenticated user."""

    created_at: datetime


class TokenView(BaseModel):
    """Response to registration and login."""

    access_token: str
    token_type: Literal["bearer"] = "bearer"  # noqa: S105 - the scheme's name, not a secret
    user: UserView
