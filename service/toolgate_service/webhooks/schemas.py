"""Request and response bodies of the API for webhooks."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    JsonValue,
    WithJsonSchema,
    model_validator,
)

from toolgate_service.core.schemas import (
    EXAMPLE_EXPIRY,
    EXAMPLE_ID,
    EXAMPLE_TIME,
    EXAMPLE_USER_ID,
    Body,
    Change,
    CreatedAt,
    Description,
    ResourceId,
    added_field,
    example,
)
from toolgate_service.outbound.ssrf import MAX_URL
from toolgate_service.webhooks.events import EVENT_TYPES

_HOOK = "https://hooks.example.com/toolgate"


def _require_known_types(value: object) -> object:
    if not isinstance(value, list):
        return value
    unknown = [one for one in value if one not in EVENT_TYPES]
    if unknown:
        shown = ", ".join(map(_describe, unknown[:5]))
        raise ValueError(f"unknown event type {shown}: expected one of {', '.join(EVENT_TYPES)}")
    return value


def _describe(value: object) -> str:
    # The value of an object or list is omitted, because `repr` of deeply nested data can exceed the recursion limit.
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
    return repr(value)[:100]


def _without_duplicates(value: Sequence[str]) -> Sequence[str]:
    return list(dict.fromkeys(value))


_EVENT_TYPES_SCHEMA: dict[str, Any] = {
    "type": "array",
    "items": {"enum": list(EVENT_TYPES)},
    "minItems": 1,
    "maxItems": len(EVENT_TYPES),
}
EventTypes = Annotated[
    list[str],
    Field(min_length=1, max_length=len(EVENT_TYPES)),
    AfterValidator(_without_duplicates),
    BeforeValidator(_require_known_types),
    WithJsonSchema(_EVENT_TYPES_SCHEMA),
]
#: URL of a webhook. The service validates it, because the allowed URLs depend on the settings of the gateway.
Url = Annotated[
    str,
    WithJsonSchema(
        {
            "type": "string",
            "format": "webhook-url",
            "maxLength": MAX_URL,
            "pattern": r"^[Hh][Tt][Tt][Pp][Ss]?://\S+$",
            "examples": [_HOOK],
        }
    ),
]


URL_RULE = f"Public https URL without user, password and fragment, at most {MAX_URL:,} characters."
WebhookType = Literal["standard", "slack"]

#: Signing secret of a Slack app. Slack does not document its format, so only its length and characters are validated.
SigningSecret = Annotated[
    str,
    Field(min_length=16, max_length=200, pattern=r"^[!-~]+$"),
]


class NewWebhook(Body):
    """Request body of POST /api/webhooks.

    The type `slack` requires the `url` of a Slack incoming webhook and the `signing_secret` of the Slack app. Responses
    contain neither of these.
    """

    model_config = example(url=_HOOK, events=["approval.requested"], description="Notifies our on-call team")

    type: WebhookType | None = Field(
        default=None,
        description="`standard` for a receiver of signed events, `slack` for a Slack channel. The default is `standard`.",
    )
    kind: WebhookType = Field(
        default="standard",
        description="Former name of `type`. If a request contains `type`, this field is ignored.",
    )
    url: Url = Field(description=URL_RULE)
    signing_secret: SigningSecret | None = Field(
        default=None,
        description="Signing secret of the Slack app, 16-200 visible ASCII characters: required for the type `slack`, "
        "and not allowed for other types.",
    )
    events: EventTypes | None = Field(
        default=None,
        description="Types of events to send. By default, webhooks of the type `slack` receive the events about "
        "approvals, and other webhooks receive all events except `log.created`.",
    )
    description: Description | None = Field(
        default=None, description="Description, for people: at most 1,000 characters."
    )
    include_context: bool = Field(
        default=False,
        description="True to send the context of calls. The default is true for the type `slack`, otherwise false.",
    )

    @model_validator(mode="after")
    def _unify_type_and_kind(self) -> Self:
        # Let `type` take precedence, and accept a different `kind`, because clients that are generated from the OpenAPI
        # document always send the default of `kind`.
        self.type = self.kind = self.type or self.kind
        return self


class WebhookChange(Change):
    """Request body of PUT /api/webhooks/{webhook_id}. Fields that the request omits keep their values."""

    model_config = example(is_active=True)

    nullable = frozenset({"description", "events"})

    url: Url | None = Field(default=None, description=URL_RULE)
    signing_secret: SigningSecret | None = Field(
        default=None,
        description="New signing secret of the Slack app, 16-200 visible ASCII characters. Only for the type `slack`.",
    )
    events: EventTypes | None = Field(
        default=None, description="Types of events to send; null selects the default types."
    )
    description: Description | None = Field(
        default=None, description="New description, at most 1,000 characters; null removes the description."
    )
    include_context: bool | None = Field(default=None, description="True to send the context of calls.")
    is_active: bool | None = Field(
        default=None, description="False to disable the webhook, true to enable it."
    )


_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - an example for the documentation, not a secret
_EXAMPLE: dict[str, JsonValue] = {
    "id": EXAMPLE_ID,
    "environment": "production",
    "type": "standard",
    "kind": "standard",
    "url": _HOOK,
    "description": "Notifies our on-call team",
    "events": ["approval.requested"],
    "include_context": False,
    "is_active": True,
    "disabled_reason": None,
    "disabled_at": None,
    "last_success_at": None,
    "created_at": EXAMPLE_TIME,
    "created_by": EXAMPLE_USER_ID,
}


class WebhookView(BaseModel):
    """Webhook in responses of the API."""

    model_config = example(**_EXAMPLE)

    id: ResourceId
    environment: str = Field(description="Environment whose events are sent: `production` or `test`.")
    type: str = added_field("", "`standard` for a receiver of signed events, `slack` for a Slack channel.")
    kind: str = Field(description="Same value as `type`.")
    url: str = Field(
        description="URL that receives the events; for the type `slack` without the secret path."
    )
    description: str | None = Field(description="Description, for people.")
    events: Sequence[str] = Field(description="Types of events that are sent.")
    include_context: bool = Field(description="True if the context of calls is sent.")
    is_active: bool = Field(description="False if the webhook is disabled; it then receives no events.")
    disabled_reason: str | None = Field(
        description="Reason why the gateway disabled the webhook; null if the gateway did not disable it."
    )
    disabled_at: datetime | None = Field(description="Time at which the webhook was disabled, or null.")
    last_success_at: datetime | None = Field(description="Time of the last successful delivery, or null.")
    created_at: CreatedAt
    created_by: str = Field(description="Id of the user who created the webhook, a UUID.")


class NewWebhookView(WebhookView):
    """New webhook with its secret."""

    model_config = example(**_EXAMPLE, secret=_SECRET)

    secret: str | None = Field(
        description="Secret with which the receiver verifies signatures (Standard Webhooks). It is never returned "
        "again. Null for the type `slack`."
    )


class RotatedSecretView(BaseModel):
    """New signing secret of a webhook."""

    model_config = example(id=EXAMPLE_ID, secret=_SECRET, former_secret_expires_at=EXAMPLE_EXPIRY)

    id: str = Field(description="Id of the webhook, a UUID.")
    secret: str = Field(
        description="New secret with which the receiver verifies signatures. It is never returned again."
    )
    former_secret_expires_at: datetime = Field(
        description="Time until which deliveries are signed with the former secret too."
    )


DeliveryStatus = Literal["pending", "delivered", "failed"]


class DeliveryView(BaseModel):
    """Delivery of one event to one webhook."""

    model_config = example(
        id=EXAMPLE_ID,
        webhook_id=EXAMPLE_ID,
        event_id=EXAMPLE_ID,
        type="approval.requested",
        status="delivered",
        attempts=1,
        response_code=204,
        error=None,
        next_attempt_at=None,
        last_attempt_at=EXAMPLE_TIME,
        delivered_at=EXAMPLE_TIME,
        created_at=EXAMPLE_TIME,
    )

    id: ResourceId
    webhook_id: str = Field(description="Id of the webhook, a UUID.")
    event_id: str = Field(
        description="Id of the event, a UUID. The receiver gets it in the header `webhook-id`."
    )
    type: str = Field(description="Type of the event, such as `approval.requested`.")
    status: str = Field(description="`pending`, `delivered` or `failed`.")
    attempts: int = Field(description="Number of attempts so far.")
    response_code: int | None = Field(
        description="HTTP status of the receiver's last response; null if there was none."
    )
    error: str | None = Field(description="Error of the last attempt; null if it succeeded.")
    next_attempt_at: datetime | None = Field(
        description="Time of the next attempt; null if no attempt follows."
    )
    last_attempt_at: datetime | None = Field(
        description="Time of the last attempt; null before the first attempt."
    )
    delivered_at: datetime | None = Field(description="Time of the successful attempt, or null.")
    created_at: CreatedAt
