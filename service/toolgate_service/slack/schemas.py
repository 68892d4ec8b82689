"""API bodies for links between Slack accounts and users, and parsing of the signed requests that Slack sends."""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self, TypeAlias
from urllib.parse import parse_qsl

from pydantic import BaseModel, Field

from toolgate_service.core import strict_json
from toolgate_service.core.errors import FieldErrors
from toolgate_service.core.ids import is_id
from toolgate_service.core.schemas import (
    EXAMPLE_EXPIRY,
    EXAMPLE_ID,
    EXAMPLE_TIME,
    EXAMPLE_USER_ID,
    Body,
    CreatedAt,
    ResourceId,
    example,
)


class NewLinkCode(Body):
    """Optional request body of POST /api/slack/link-codes."""

    model_config = example(webhook_id="{slack_webhook_id}")

    webhook_id: str | None = Field(
        default=None,
        description="Id of a webhook that belongs to the Slack app in which the user will enter the code, a UUID. "
        "Required if the organization has several Slack apps.",
    )


class LinkCodeView(BaseModel):
    """Code that a user enters in Slack as `/toolgate link CODE`. It works once and is never shown again."""

    model_config = example(code="7KQ2M9XD4T0AZ5RB", expires_at=EXAMPLE_EXPIRY)

    code: str = Field(description="One-time code that links the Slack account of the user who enters it.")
    expires_at: datetime = Field(
        description="Time at which the code expires, ten minutes after its creation."
    )


class SlackLinkView(BaseModel):
    """Link between a Slack account and a Toolgate user. The account's decisions count as those of the user."""

    model_config = example(
        id=EXAMPLE_ID,
        webhook_id=EXAMPLE_ID,
        environment="production",
        user_id=EXAMPLE_USER_ID,
        team_id="T012AB3C4",
        slack_user_id="U061F7AUR",
        created_at=EXAMPLE_TIME,
    )

    id: ResourceId
    webhook_id: str = Field(description="Id of the webhook of the Slack app, a UUID.")
    environment: str = Field(description="Environment of the webhook: `production` or `test`.")
    user_id: str = Field(description="Toolgate's id of the user, a UUID.")
    team_id: str = Field(description="Slack's id of the workspace.")
    slack_user_id: str = Field(description="Slack's id of the Slack account.")
    created_at: CreatedAt


#: Identifiers (`action_id` in Slack) of the buttons in a message.
APPROVE = "toolgate.approve"
DENY = "toolgate.deny"

MAX_FIELDS = 100
_VALUE = re.compile(r"v1\.([0-9a-f-]{36})\.([0-9a-f]{64})")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class SlackUser:
    """Slack account. Slack identifies it by the id of its workspace together with the id of the user."""

    team_id: str
    user_id: str


@dataclass(frozen=True, slots=True)
class ButtonPress:
    """Click on the button "Approve" or "Reject" of a Slack message.

    Attributes:
        approval_id: Id of the approval request that the message is about.
        digest: Digest of the call's arguments that the message showed.
        approves: True for the button "Approve", False for "Reject".
    """

    approval_id: str
    digest: str
    approves: bool


@dataclass(frozen=True, slots=True)
class Click:
    """Click of a Slack user on a button of the gateway. The gateway sends its reply to `response_url`."""

    slack_user: SlackUser
    button: ButtonPress
    response_url: str


@dataclass(frozen=True, slots=True)
class Command:
    """Slack command `/toolgate` that a user entered. `text` is the part after `/toolgate`."""

    slack_user: SlackUser
    text: str


@dataclass(frozen=True, slots=True)
class Other:
    """Interaction that the gateway ignores, such as a click on a link in a message."""


Payload: TypeAlias = Click | Command | Other


def read_payload(body: bytes) -> Payload:
    """Parse the body of a request from Slack. The caller must have verified the request's signature.

    Raises:
        FieldErrors: The body does not have the format that Slack documents.
    """
    fields = _form(body)
    if "payload" in fields:
        try:
            payload = strict_json.loads(fields["payload"].encode())
        except strict_json.InvalidJson as error:
            raise FieldErrors({"payload": [str(error)]}) from None
        return _interaction(payload)
    if "command" in fields:
        return Command(_slack_user(fields.get("team_id"), fields.get("user_id")), fields.get("text", ""))
    return Other()


def parse_button(action_id: str, value: str) -> ButtonPress | None:
    """Parse a click on a button. The result is None if the button is not one of the gateway's buttons."""
    found = _VALUE.fullmatch(value)
    if action_id not in {APPROVE, DENY} or found is None or not is_id(found.group(1)):
        return None
    return ButtonPress(found.group(1), found.group(2), action_id == APPROVE)


def _form(body: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS
        )
    except ValueError:
        # Do not include the message of the form parser in the error, because it may contain submitted values.
        raise FieldErrors({"body": ["The body must be a form in the format that Slack sends"]}) from None
    if len({name for name, _ in pairs}) != len(pairs):
        raise FieldErrors({"body": ["A field of the form appears more than once"]})
    return dict(pairs)


def _interaction(payload: strict_json.Json) -> Payload:
    match payload:
        case {
            "type": "block_actions",
            "team": {"id": team},
            "user": {"id": user, **about},
            "actions": [{"action_id": str(action_id), "value": str(value)}],
            **rest,
        }:
            found = parse_button(action_id, value)
            if found is None:
                return Other()
            # Prefer the workspace of the user: if several workspaces share the channel, it can differ from that of the
            # channel.
            slack_user = _slack_user(about.get("team_id", team), user)
            url = rest.get("response_url")
            return Click(slack_user, found, url if isinstance(url, str) else "")
        case {"type": str()}:
            return Other()
    raise FieldErrors({"payload": ["The payload must be a Slack interaction"]})


def _slack_user(team: object, user: object) -> SlackUser:
    for name, value in (("team", team), ("user", user)):
        if not isinstance(value, str) or not _ID.fullmatch(value):
            raise FieldErrors({name: ["must be a Slack id"]})
    return SlackUser(str(team), str(user))


SIGNATURE = "x-slack-signature"
TIMESTAMP = "x-slack-request-timestamp"
#: Maximum difference between the timestamp of a request from Slack and the current time.
WINDOW = timedelta(minutes=5)

_SECONDS = re.compile(r"[0-9]{1,12}")
_SIGNED = re.compile(r"v0=[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """Body, timestamp and signature of a request from Slack. The signature is not verified yet.

    Attributes:
        body: The request body as bytes.
        seconds: Timestamp in seconds since the Unix epoch; empty if the header is missing or malformed.
        signature: Signature as in the header; empty if the header is missing or malformed.
    """

    body: bytes
    seconds: str
    signature: str

    @classmethod
    def of(cls, headers: Mapping[str, str], body: bytes) -> Self:
        """Create a `SignedRequest` from the headers and the body of a request."""
        seconds, signature = headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, "")
        return cls(
            body,
            seconds if _SECONDS.fullmatch(seconds) else "",
            signature if _SIGNED.fullmatch(signature) else "",
        )

    @property
    def has_signature(self) -> bool:
        """True if the request has a well-formed timestamp and signature. Both may still be wrong."""
        return bool(self.seconds and self.signature)

    def is_signed_with(self, secret: str, moment: datetime) -> bool:
        """Return True if `secret` signed the request and its timestamp differs from `moment` by at most `WINDOW`.

        Signatures are compared in constant time.
        """
        is_valid = hmac.compare_digest(sign(secret, self.seconds, self.body), self.signature)
        # The timestamp becomes a timedelta, because a datetime cannot represent times after the year 9999.
        sent = timedelta(seconds=int(self.seconds or 0))
        return is_valid and abs(moment - datetime(1970, 1, 1, tzinfo=UTC) - sent) <= WINDOW


def sign(secret: str, seconds: str, body: bytes) -> str:
    """Return the signature that Slack computes for a request body.

    `seconds` is the request's timestamp in seconds since the Unix epoch.
    """
    return "v0=" + hmac.digest(secret.encode(), f"v0:{seconds}:".encode() + body, "sha256").hex()
