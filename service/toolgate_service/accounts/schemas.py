"""What accounts look like on the wire (spec §2, §4)."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from toolgate_service.web.bodies import Body, example
from toolgate_service.web.fields import Email, LinkToken, Name, Password


class Registration(Body):
    """POST /auth/register."""

    model_config = example(
        email="ada@example.com",
        password="correct horse battery",  # noqa: S106 - nobody's
        organization_name="Acme",
    )

    email: Email
    password: Password
    organization_name: Name


class Login(Body):
    """POST /auth/login. The password's length is not judged here: it either fits or it does not."""

    model_config = example(email="ada@example.com", password="correct horse battery")  # noqa: S106 - nobody's

    email: Annotated[str, Field(max_length=1000)]
    password: Annotated[str, Field(max_length=1000)]
    scope: Literal["full", "cli"] = "full"


class PasswordChange(Body):
    """POST /auth/password. The current one's length is not judged: it either fits or it does not."""

    model_config = example(
        current_password="correct horse battery",  # noqa: S106 - nobody's
        new_password="correct horse battery staple",  # noqa: S106 - nobody's
    )

    current_password: Annotated[str, Field(max_length=1000)]
    new_password: Password


class ResetRequest(Body):
    """POST /auth/password-reset."""

    model_config = example(email="ada@example.com")

    email: Email


class ResetConfirmation(Body):
    """POST /auth/password-reset/confirm."""

    model_config = example(token="{reset_token}", new_password="correct horse battery")  # noqa: S106 - nobody's

    token: LinkToken
    new_password: Password


class Told(BaseModel):
    """The answer to a wish that is not granted here and now."""

    detail: str


class UserView(BaseModel):
    """A user, as login and registration show it."""

    id: str
    email: str
    organization_id: str


class CurrentUser(UserView):
    """A user, as GET /auth/me shows it."""

    created_at: datetime


class TokenView(BaseModel):
    """The answer to registration and login."""

    access_token: str
    token_type: Literal["bearer"] = "bearer"  # noqa: S105 - the scheme's name, not a secret
    user: UserView
