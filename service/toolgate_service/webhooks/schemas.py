"""Request and response bodies of the API for webhooks."""

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
            "description": "A public https address, without user, password and fragment.",
            "examples": [_HOOK],
        }
    ),
]


#: Signing secret of a Slack app. Slack does not document its format, so only its length and characters are validated.
SigningSecret = Annotated[
    str,
    Field(min_length=16, max_length=200, pattern=r"^[!-~]+$"),
]


class NewWebhook(Body):
    """Body of POST /api/webhooks.

    If `events` is omitted, a webhook of kind `slack` receives the events about approvals. Any other webhook receives
    all types of events except `log.created`.

    A webhook of kind `slack` requires the `url` of a Slack incoming webhook and the `signing_secret` of the Slack app.
    Responses contain neither of these. For this kind, `include_context` is true by default.
    """

    model_config = example(url=_HOOK, events=["approval.requested"], description="Tells our pager")

    kind: Literal["standard", "slack"] = "standard"
    url: Url
    signing_secret: SigningSecret | None = None
    events: EventTypes | None = None
    description: Description | None = None
    include_context: bool = False


class WebhookChange(Change):
    """Body of PUT /api/webhooks/{webhook_id}. Fields that the request omits keep their values.

    A `description` of null removes the description. An `events` of null selects the default types of events.
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
    """Webhook as the API returns it.

    `disabled_reason` is set if the gateway disabled the webhook. The `url` of a Slack webhook contains no path.
    """

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
    """New webhook with its `secret`, which receivers use to verify deliveries.

    The secret is never returned again. It is null for a Slack webhook.
    """

    secret: str | None


class RotatedSecretView(BaseModel):
    """New signing secret of a webhook. It is never returned again.

    Until `former_secret_expires_at`, deliveries are signed with both the new and the former secret.
    """

    id: str
    secret: str
    former_secret_expires_at: datetime


DeliveryStatus = Literal["pending", "delivered", "failed"]


class DeliveryView(BaseModel):
    """Delivery of one event to one webhook. The receiver gets the `event_id` in the header `webhook-id`."""

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
