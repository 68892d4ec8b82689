"""What links to Slack look like on the wire."""

from datetime import datetime

from pydantic import BaseModel

from toolgate_service.web.bodies import Body, example


class NewLinkCode(Body):
    """The optional body of POST /api/slack/link-codes.

    Attributes:
        webhook_id: a webhook of the Slack app in which the code will be typed; required where several apps are connected.
    """

    model_config = example(webhook_id="{slack_webhook_id}")
    webhook_id: str | None = None


class LinkCodeView(BaseModel):
    """A code to type in Slack, behind `/toolgate link`; shown this once, and works once until it expires."""

    code: str
    expires_at: datetime


class SlackLinkView(BaseModel):
    """Which Slack user decides as which member, by the app of which webhook. The ids of Slack are Slack's own."""

    id: str
    webhook_id: str
    environment: str
    user_id: str
    team_id: str
    slack_user_id: str
    created_at: datetime
