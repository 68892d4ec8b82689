"""What stands in for Slack: its signature, the requests that it sends as it documents them, and a linked member."""

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import httpx

from support.gateway import Owner
from support.leaks import KNOWN

SIGNING_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
URL = "https://hooks.slack.com/services/T0AAA/B0BBB/marked-credential"
KNOWN.learn(SIGNING_SECRET, "marked-credential")


def signed(body: bytes, secret: str = SIGNING_SECRET, *, at: float | None = None) -> dict[str, str]:
    """Return the headers with which Slack sends a body, by Slack's own recipe."""
    seconds = str(int(time.time() if at is None else at))
    digest = hmac.new(secret.encode(), f"v0:{seconds}:".encode() + body, hashlib.sha256).hexdigest()
    return {
        "Content-Type": "application/x-www-form-urlencoded",
        "User-Agent": "Slackbot 1.0 (+https://api.slack.com/robots)",
        "X-Slack-Request-Timestamp": seconds,
        "X-Slack-Signature": f"v0={digest}",
    }


def command(text: str, *, user: str = "U2CERLKJA", team: str = "T1DC2JH3J") -> bytes:
    """Return a slash command, as Slack documents it."""
    return urlencode(
        {
            "token": "xyzz0WbapA4vBCDEFasx0q6G",
            "team_id": team,
            "team_domain": "testteamnow",
            "channel_id": "G8PSS9T3V",
            "channel_name": "foobar",
            "user_id": user,
            "user_name": "roadrunner",
            "command": "/toolgate",
            "text": text,
            "api_app_id": "A123456",
            "is_enterprise_install": "false",
            "response_url": "https://hooks.slack.com/commands/T1DC2JH3J/397700885554/96rGlfmibIGlgcZRskXaIFfN",
            "trigger_id": "398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
        }
    ).encode()


def block_actions(
    action_id: str,
    value: str,
    *,
    user: str = "U2CERLKJA",
    team: str = "T1DC2JH3J",
    response_url: str = "https://hooks.slack.com/actions/T1DC2JH3J/6204672533/x7ZLaiVMoECAW50Gw1ZYAXEM",
) -> dict[str, Any]:
    """Return the payload of a press on a button, as Slack documents it."""
    return {
        "type": "block_actions",
        "user": {"id": user, "username": "roadrunner", "name": "roadrunner", "team_id": team},
        "api_app_id": "A02ABCDEF",
        "token": "Shh_its_a_seekrit",
        "container": {
            "type": "message",
            "message_ts": "1548261231.000200",
            "channel_id": "CBR2V3XEX",
            "is_ephemeral": False,
        },
        "trigger_id": "12466734323.1395872398.eb8a5d6e4c8b0d6f",
        "team": {"id": team, "domain": "testteamnow"},
        "enterprise": None,
        "is_enterprise_install": False,
        "channel": {"id": "CBR2V3XEX", "name": "review-updates"},
        "message": {
            "type": "message",
            "subtype": "bot_message",
            "bot_id": "BAH5CA16Z",
            "ts": "1548261231.000200",
            "text": "An agent needs an approval",
            "blocks": [],
        },
        "state": {"values": {}},
        "response_url": response_url,
        "actions": [
            {
                "action_id": action_id,
                "block_id": "toolgate.decide",
                "text": {"type": "plain_text", "text": "Approve", "emoji": False},
                "value": value,
                "style": "primary",
                "type": "button",
                "action_ts": "1548426417.840180",
            }
        ],
    }


def form(payload: object) -> bytes:
    """Return an interaction as Slack sends it."""
    return urlencode({"payload": json.dumps(payload)}).encode()


def buttons_of(message: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a message's buttons by their ids."""
    elements = [one for block in message["blocks"] if block["type"] == "actions" for one in block["elements"]]
    return {one["action_id"]: one["value"] for one in elements}


def shown_in(message: Mapping[str, Any]) -> str:
    """Return what a reader sees of a message, the three escapes of Slack undone."""
    texts = [block["text"]["text"] for block in message["blocks"] if block["type"] == "section"]
    return "\n".join(texts).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


class SlackHook:
    """An organization's Slack webhook.

    Attributes:
        made: what the gateway answered.
    """

    def __init__(
        self,
        owner: Owner,
        url: str = URL,
        *,
        environment: str = "production",
        secret: str = SIGNING_SECRET,
        **fields: object,
    ) -> None:
        self.owner = owner
        self.secret = secret
        self.scope = {"environment": environment}
        body = {"kind": "slack", "url": url, "signing_secret": secret} | fields
        answer = owner.http.post("/api/webhooks", json=body, params=self.scope)
        assert answer.status_code == 201, answer.text
        self.made: dict[str, Any] = answer.json()
        self.path = f"/api/webhooks/{self.made['id']}"
        self.intake = f"{owner.url}/integrations/slack/{self.made['id']}"

    def send(self, body: bytes, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Send something as Slack does."""
        given = signed(body, self.secret) if headers is None else dict(headers)
        return httpx.post(self.intake, content=body, headers=given, timeout=30)

    def say(self, text: str, **who: str) -> str:
        """Type something behind the command and return the answer, which only the one who typed sees."""
        answer = self.send(command(text, **who))
        assert answer.status_code == 200, answer.text
        assert answer.json()["response_type"] == "ephemeral"
        words: str = answer.json()["text"]
        return words

    def link(self, member: httpx.Client, **who: str) -> str:
        """Link a Slack user to a member and return what they are told."""
        answer = member.post("/api/slack/link-codes")
        assert answer.status_code == 201, answer.text
        return self.say(f"link {answer.json()['code']}", **who)

    def press(self, action_id: str, value: str, **who: str) -> httpx.Response:
        """Press a button."""
        return self.send(form(block_actions(action_id, value, **who)))


def linked(owner: Owner) -> str:
    """Link the owner to a Slack user of their own, through a webhook that is told of reminders alone; return the link's id."""
    hook = SlackHook(owner, events=["approval.reminder"])
    words = hook.link(owner.http, user=f"U{secrets.token_hex(8).upper()}")
    [link] = [one for one in owner.http.get("/api/slack/links").json() if one["user_id"] == owner.user["id"]]
    assert words.startswith("Linked"), words
    return str(link["id"])
