"""Request and response bodies of webhooks."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, WithJsonSchema

from toolgate_service.core.schemas import Body, Change, Description, example
from toolgate_service.outbound.ssrf import MAX_URL
from toolgate_service.webhooks.events import EVENT_TYPES

_HOOK = "https://hooks.example.com/toolgate"


def _require_known_types(value: object) -> object:
    if not isinstance(value, list):
        return value
    unknown = [one for one in value if one not in EVENT_TYPES]
    if unknown:
        shown = ", ".join(map(_describe, unknown[:5]))
        raise ValueError(f"no such kind of event: {shown}; choose of {', '.join(EVENT_TYPES)}")
    return value


def _describe(value: object) -> str:
    # Objects and lists are not shown, because `repr` of a deeply nested value may exceed the recursion limit.
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
#: URL of a webhook; the service validates it, because the rules depend on the gateway's settings
Url = Annotated[
    str,
    WithJsonSchema(
        {
            "type": "string",
            "format": "webhook-url",
            "maxLength": MAX_URL,
            "pattern": r"^[Hh][Tt][Tt][Pp][Ss]?://\S+$",
            "description": "A public https address, without user, password and fragment.",
            "examples": [_HOOK],
        }
    ),
]


#: signing secret of a Slack app; Slack does not document the format, so only length and characters are validated
SigningSecret = Annotated[
    str,
    Field(min_length=16, max_length=200, pattern=r"^[!-~]+$"),
]


class NewWebhook(Body):
    """Body of POST /api/webhooks. Without `events`, the webhook receives all event types except `log.created`.

    A webhook of kind `slack` needs the `url` of an incoming webhook and the `signing_secret` of the app; responses
    contain neither. Without `events` it receives the approval events, and `include_context` is true by default.
    """

    model_config = example(url=_HOOK, events=["approval.requested"], description="Tells our pager")

    kind: Literal["standard", "slack"] = "standard"
    url: Url
    signing_secret: SigningSecret | None = None
    events: EventTypes | None = None
    description: Description | None = None
    include_context: bool = False


class WebhookChange(Change):
    """Body of PUT /api/webhooks/{webhook_id}. Fields that are not sent keep their values.

    If `description` is null, the description is removed. If `events` is null, the default event types apply.
    """

    model_config = example(is_active=True)

    nullable = frozenset({"description", "events"})

    url: Url | None = None
    signing_secret: SigningSecret | None = None
    events: EventTypes | None = None
    description: Description | None = None
    include_context: bool | None = None
    is_active: bool | None = None


class WebhookView(BaseModel):
    """Webhook. `disabled_reason` is set if the gateway disabled it. The `url` of a Slack webhook has no path."""

    id: str
    environment: str
    kind: str
    url: str
    description: str | None
    events: Sequence[str]
    include_context: bool
    is_active: bool
    disabled_reason: str | None
    disabled_at: datetime | None
    last_success_at: datetime | None
    created_at: datetime
    created_by: str


class NewWebhookView(WebhookView):
    """New webhook. `secret` verifies the webhook's deliveries and is not shown again; it is null for Slack."""

    secret: str | None


class RotatedSecretView(BaseModel):
    """New secret of a webhook, which is not shown again.

    Until `former_secret_expires_at`, deliveries are signed with both the new and the former secret.
    """

    id: str
    secret: str
    former_secret_expires_at: datetime


DeliveryStatus = Literal["pending", "delivered", "failed"]


class DeliveryView(BaseModel):
    """Delivery of one event to one webhook. `event_id` is sent to the receiver in the header `webhook-id`."""

    id: str
    webhook_id: str
    event_id: str
    type: str
    status: str
    attempts: int
    response_code: int | None
    error: str | None
    next_attempt_at: datetime | None
    last_attempt_at: datetime | None
    delivered_at: datetime | None
    created_at: datetime
