"""What Slack sends, read: a press on a button, a command that somebody typed, or something that is not for us."""

import re
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import parse_qsl

from toolgate_service import exact_json
from toolgate_service.errors import FieldErrors
from toolgate_service.slack.buttons import Pressed, pressed

MOST_FIELDS = 100
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Who:
    """A Slack user, by Slack's ids."""

    team_id: str
    user_id: str


@dataclass(frozen=True, slots=True)
class Click:
    """Somebody pressed one of our buttons; the words go to `response_url`."""

    who: Who
    pressed: Pressed
    response_url: str


@dataclass(frozen=True, slots=True)
class Command:
    """Somebody typed our command; `text` is what stands behind it."""

    who: Who
    text: str


@dataclass(frozen=True, slots=True)
class Other:
    """Something that is not for us, such as a press on a link."""


Sent: TypeAlias = Click | Command | Other


def read_sent(body: bytes) -> Sent:
    """Read a body whose signature holds.

    Raises:
        FieldErrors: it is not what Slack sends.
    """
    fields = _form(body)
    if "payload" in fields:
        try:
            payload = exact_json.loads(fields["payload"].encode())
        except exact_json.InvalidJson as error:
            raise FieldErrors({"payload": [str(error)]}) from None
        return _interaction(payload)
    if "command" in fields:
        return Command(_who(fields.get("team_id"), fields.get("user_id")), fields.get("text", ""))
    return Other()


def _form(body: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS
        )
    except ValueError:
        # The library's own words may repeat what was sent.
        raise FieldErrors({"body": ["The body must be a form as Slack sends it"]}) from None
    if len({name for name, _ in pairs}) != len(pairs):
        raise FieldErrors({"body": ["A field of the form appears more than once"]})
    return dict(pairs)


def _interaction(payload: exact_json.Json) -> Sent:
    match payload:
        case {
            "type": "block_actions",
            "team": {"id": team},
            "user": {"id": user, **about},
            "actions": [{"action_id": str(action_id), "value": str(value)}],
            **rest,
        }:
            found = pressed(action_id, value)
            if found is None:
                return Other()
            # Where a channel is shared, the user may be of another workspace than the channel.
            who = _who(about.get("team_id", team), user)
            url = rest.get("response_url")
            return Click(who, found, url if isinstance(url, str) else "")
        case {"type": str()}:
            return Other()
    raise FieldErrors({"payload": ["The payload must be an interaction of Slack"]})


def _who(team: object, user: object) -> Who:
    for name, value in (("team", team), ("user", user)):
        if not isinstance(value, str) or not _ID.fullmatch(value):
            raise FieldErrors({name: ["must be an id of Slack"]})
    return Who(str(team), str(user))
