"""Bodies of the API for links to Slack users, and requests from Slack: their signatures and bodies."""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self, TypeAlias
from urllib.parse import parse_qsl

from pydantic import BaseModel

from toolgate_service.core import strict_json
from toolgate_service.core.errors import FieldErrors
from toolgate_service.core.ids import is_id
from toolgate_service.core.schemas import Body, example


class NewLinkCode(Body):
    """The optional body of POST /api/slack/link-codes.

    Attributes:
        webhook_id: Id of a webhook of the Slack app in which the code will be typed. Required if the organization has
            several Slack apps.
    """

    model_config = example(webhook_id="{slack_webhook_id}")
    webhook_id: str | None = None


class LinkCodeView(BaseModel):
    """A code to type in Slack after `/toolgate link`. It works once, and only this response contains it."""

    code: str
    expires_at: datetime


class SlackLinkView(BaseModel):
    """Link that lets a Slack user decide as a member, in the Slack app of one webhook.

    Attributes:
        user_id: The gateway's id of the member.
        team_id: Slack's id of the workspace.
        slack_user_id: Slack's id of the user.
    """

    id: str
    webhook_id: str
    environment: str
    user_id: str
    team_id: str
    slack_user_id: str
    created_at: datetime


#: action ids of the buttons
APPROVE = "toolgate.approve"
DENY = "toolgate.deny"

MAX_FIELDS = 100
_VALUE = re.compile(r"v1\.([0-9a-f-]{36})\.([0-9a-f]{64})")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class SlackUser:
    """Slack user, identified by Slack's ids of the workspace and the user."""

    team_id: str
    user_id: str


@dataclass(frozen=True, slots=True)
class ButtonPress:
    """Press of the button "Approve" or "Deny" in a message.

    Attributes:
        approval_id: Id of the approval request.
        digest: Digest of the context that the message showed.
        approves: True for the button "Approve", False for "Deny".
    """

    approval_id: str
    digest: str
    approves: bool


@dataclass(frozen=True, slots=True)
class Click:
    """Press of one of the gateway's buttons by a Slack user. The reply is sent to `response_url`."""

    slack_user: SlackUser
    button: ButtonPress
    response_url: str


@dataclass(frozen=True, slots=True)
class Command:
    """The `/toolgate` command; `text` is the text after the command's name."""

    slack_user: SlackUser
    text: str


@dataclass(frozen=True, slots=True)
class Other:
    """Any other interaction, such as a click on a link. The gateway ignores it."""


Payload: TypeAlias = Click | Command | Other


def read_payload(body: bytes) -> Payload:
    """Parse the body of a request from Slack whose signature was verified.

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
    """Parse the action id and the value of a pressed button; None if it is not a button of the gateway."""
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
        # The library's message is dropped, because it may contain submitted values.
        raise FieldErrors({"body": ["The body must be a form as Slack sends it"]}) from None
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
            # In a shared channel, the user's workspace can differ from the channel's workspace.
            slack_user = _slack_user(about.get("team_id", team), user)
            url = rest.get("response_url")
            return Click(slack_user, found, url if isinstance(url, str) else "")
        case {"type": str()}:
            return Other()
    raise FieldErrors({"payload": ["The payload must be an interaction of Slack"]})


def _slack_user(team: object, user: object) -> SlackUser:
    for name, value in (("team", team), ("user", user)):
        if not isinstance(value, str) or not _ID.fullmatch(value):
            raise FieldErrors({name: ["must be an id of Slack"]})
    return SlackUser(str(team), str(user))


SIGNATURE = "x-slack-signature"
TIMESTAMP = "x-slack-request-timestamp"
#: maximum difference between the timestamp and the current time
WINDOW = timedelta(minutes=5)

_SECONDS = re.compile(r"[0-9]{1,12}")
_SIGNED = re.compile(r"v0=[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """Body of a request with the values of its timestamp and signature headers.

    Attributes:
        body: The request body.
        seconds: The timestamp in seconds since the epoch; empty if the header is missing or malformed.
        signature: The signature; empty if the header is missing or malformed.
    """

    body: bytes
    seconds: str
    signature: str

    @classmethod
    def of(cls, headers: Mapping[str, str], body: bytes) -> Self:
        """Return the signed request with these headers and this body."""
        seconds, signature = headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, "")
        return cls(
            body,
            seconds if _SECONDS.fullmatch(seconds) else "",
            signature if _SIGNED.fullmatch(signature) else "",
        )

    @property
    def has_signature(self) -> bool:
        """True if the headers contain a well-formed timestamp and a well-formed signature."""
        return bool(self.seconds and self.signature)

    def is_signed_with(self, secret: str, moment: datetime) -> bool:
        """Return whether the signature matches and its timestamp is within `WINDOW`; compare in constant time."""
        is_valid = hmac.compare_digest(sign(secret, self.seconds, self.body), self.signature)
        # The timestamp is converted to a timedelta, because a datetime cannot represent times after the year 9999.
        sent = timedelta(seconds=int(self.seconds or 0))
        return is_valid and abs(moment - datetime(1970, 1, 1, tzinfo=UTC) - sent) <= WINDOW


def sign(secret: str, seconds: str, body: bytes) -> str:
    """Return the signature of a body; `seconds` is the timestamp in seconds since the epoch."""
    return "v0=" + hmac.digest(secret.encode(), f"v0:{seconds}:".encode() + body, "sha256").hex()
