"""Request and response bodies of the routes for registration, login and passwords."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field, JsonValue

from toolgate_service.core.schemas import (
    EXAMPLE_ID,
    EXAMPLE_TIME,
    EXAMPLE_USER_ID,
    NAME_RULE,
    Body,
    CreatedAt,
    Email,
    LinkToken,
    Name,
    OrganizationId,
    Password,
    ResourceId,
    example,
)


class Registration(Body):
    """Request body of POST /auth/register."""

    model_config = example(
        email="ada@example.com",
        password="correct horse battery",  # noqa: S106 - an example for the documentation, not a password
        organization_name="Acme",
    )

    email: Email = Field(
        description="E-mail address of the first admin, compared in lower case; at most 254 characters."
    )
    password: Password = Field(description="Password of the first admin, 8-128 characters.")
    organization_name: Name = Field(description=f"Name of the new organization: {NAME_RULE}.")


class Login(Body):
    """Request body of POST /auth/login. There is no minimum length: a short password is simply wrong (401)."""

    model_config = example(email="ada@example.com", password="correct horse battery")  # noqa: S106 - an example for the documentation, not a password

    email: Annotated[str, Field(max_length=1000)] = Field(description="E-mail address of the user.")
    password: Annotated[str, Field(max_length=1000)] = Field(description="Password of the user.")
    scope: Literal["full", "cli"] = Field(
        default="full",
        description="Scope of the token. A token with the scope `cli` cannot decide requests, show API keys, or change "
        "permissions, the team or webhooks.",
    )


class PasswordChange(Body):
    """Request body of POST /auth/password. The minimum length of passwords applies only to `new_password`."""

    model_config = example(
        current_password="correct horse battery",  # noqa: S106 - an example for the documentation, not a password
        new_password="correct horse battery staple",  # noqa: S106 - an example for the documentation, not a password
    )

    current_password: Annotated[str, Field(max_length=1000)] = Field(
        description="Current password of the user."
    )
    new_password: Password = Field(description="New password, 8-128 characters.")


class ResetRequest(Body):
    """Request body of POST /auth/password-reset."""

    model_config = example(email="ada@example.com")

    email: Email = Field(description="E-mail address of the user.")


class ResetConfirmation(Body):
    """Request body of POST /auth/password-reset/confirm."""

    model_config = example(token="{reset_token}", new_password="correct horse battery")  # noqa: S106 - an example for the documentation, not a password

    token: LinkToken = Field(
        description="One-time token from the reset link, valid for one hour; at most 1,000 characters."
    )
    new_password: Password = Field(description="New password, 8-128 characters.")


class Message(BaseModel):
    """Response to a request that the gateway accepts now and processes later."""

    model_config = example(
        detail="If this e-mail address is registered, an e-mail with a link to set a new password is on its way"
    )

    detail: str = Field(description="Message for the user.")


_USER: dict[str, JsonValue] = {
    "id": EXAMPLE_USER_ID,
    "email": "ada@example.com",
    "organization_id": EXAMPLE_ID,
}


class UserView(BaseModel):
    """User as shown in the responses of login and registration."""

    id: ResourceId
    email: str = Field(description="E-mail address with which the user logs in, in lower case.")
    organization_id: OrganizationId


class CurrentUser(UserView):
    """Response of GET /auth/me: the authenticated user."""

    model_config = example(**_USER, created_at=EXAMPLE_TIME)

    created_at: CreatedAt


class TokenView(BaseModel):
    """Session token and its user: the response to registration, login and a change of the password."""

    model_config = example(access_token="eyJhbGciOiJIUzI1NiJ9.…", token_type="bearer", user=_USER)  # noqa: S106 - an example for the documentation, not a token

    access_token: str = Field(
        description="Session token, a JWT, valid for seven days. Send it as `Authorization: Bearer …`."
    )
    token_type: Literal["bearer"] = Field(default="bearer", description="Always `bearer`.")
    user: UserView = Field(description="User whom the token authenticates.")
