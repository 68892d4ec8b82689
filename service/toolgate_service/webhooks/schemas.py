"""What webhooks look like on the wire (decisions §3, §10)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, WithJsonSchema

from toolgate_service.web.bodies import Body, Change, example
from toolgate_service.web.fields import Description
from toolgate_service.webhooks.kinds import KINDS
from toolgate_service.webhooks.urls import MAX_URL

_HOOK = "https://hooks.example.com/toolgate"


def _known(value: object) -> object:
    if not isinstance(value, list):
        return value
    unknown = [one for one in value if one not in KINDS]
    if unknown:
        shown = ", ".join(map(_shown, unknown[:5]))
        raise ValueError(f"no such kind of event: {shown}; choose of {', '.join(KINDS)}")
    return value


def _shown(value: object) -> str:
    # Not the whole of it: to write what nests deeply Python needs more stack than to read it.
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
    return repr(value)[:100]


def _once(value: Sequence[str]) -> Sequence[str]:
    return list(dict.fromkeys(value))


_KINDS: dict[str, Any] = {
    "type": "array",
    "items": {"enum": list(KINDS)},
    "minItems": 1,
    "maxItems": len(KINDS),
}
Kinds = Annotated[
    list[str],
    Field(min_length=1, max_length=len(KINDS)),
    AfterValidator(_once),
    BeforeValidator(_known),
    WithJsonSchema(_KINDS),
]
#: judged by the rules of webhooks, with the gateway's settings
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


#: a Slack app's; whatever Slack may make of it
SigningSecret = Annotated[
    str,
    Field(min_length=16, max_length=200, pattern=r"^[!-~]+$"),
]


class NewWebhook(Body):
    """POST /api/webhooks. Without `events` it gets every kind but those that must be named.

    Of kind `slack` it takes the `url` of an incoming webhook and the `signing_secret` of the app, neither of which is
    shown again; without `events` it gets those about approvals, and it shows contexts unless told otherwise.
    """

    model_config = example(url=_HOOK, events=["approval.requested"], description="Tells our pager")

    kind: Literal["standard", "slack"] = "standard"
    url: Url
    signing_secret: SigningSecret | None = None
    events: Kinds | None = None
    description: Description | None = None
    include_context: bool = False


class WebhookChange(Change):
    """PUT /api/webhooks/{webhook_id}: what is not sent stays.

    A null removes the description, or asks for every kind but those that must be named.
    """

    model_config = example(is_active=True)

    nullable = frozenset({"description", "events"})

    url: Url | None = None
    signing_secret: SigningSecret | None = None
    events: Kinds | None = None
    description: Description | None = None
    include_context: bool | None = None
    is_active: bool | None = None


class WebhookView(BaseModel):
    """A webhook. `disabled_reason` says why the gateway switched it off; of a Slack webhook's `url` the host is shown."""

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
    """A webhook that was just made. `secret` verifies what it gets, and is shown this once; Slack needs none."""

    secret: str | None


class RotatedSecretView(BaseModel):
    """A webhook's new secret, shown this once; the former one signs beside it for 24 hours."""

    id: str
    secret: str
    former_secret_expires_at: datetime


DeliveryStatus = Literal["pending", "delivered", "failed"]


class DeliveryView(BaseModel):
    """One event on its way to one webhook. `event_id` is what the receiver gets as `webhook-id`."""

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
