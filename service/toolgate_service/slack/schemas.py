"""Request and response bodies of the API for links between members and Slack users."""

from datetime import datetime

from pydantic import BaseModel

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
