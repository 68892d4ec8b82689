"""Parser for the bodies of requests from Slack: button presses and commands."""

import re
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import parse_qsl

from toolgate_service.core import strict_json
from toolgate_service.core.errors import FieldErrors
from toolgate_service.slack.blocks import Pressed, parse_button

MOST_FIELDS = 100
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Who:
    """Slack user, identified by Slack's ids of the workspace and the user."""

    team_id: str
    user_id: str


@dataclass(frozen=True, slots=True)
class Click:
    """Press of one of the gateway's buttons by a Slack user. The reply is sent to `response_url`."""

    who: Who
    pressed: Pressed
    response_url: str


@dataclass(frozen=True, slots=True)
class Command:
    """The `/toolgate` command; `text` is the text after the command's name."""

    who: Who
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


def _form(body: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS
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
            who = _slack_user(about.get("team_id", team), user)
            url = rest.get("response_url")
            return Click(who, found, url if isinstance(url, str) else "")
        case {"type": str()}:
            return Other()
    raise FieldErrors({"payload": ["The payload must be an interaction of Slack"]})


def _slack_user(team: object, user: object) -> Who:
    for name, value in (("team", team), ("user", user)):
        if not isinstance(value, str) or not _ID.fullmatch(value):
            raise FieldErrors({name: ["must be an id of Slack"]})
    return Who(str(team), str(user))
