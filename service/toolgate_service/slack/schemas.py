"""What links to Slack look like on the wire."""

from datetime import datetime

from pydantic import BaseModel


class LinkCodeView(BaseModel):
    """A code to type in Slack, behind `/toolgate link`; shown this once, and works once until it expires."""

    code: str
    expires_at: datetime


class SlackLinkView(BaseModel):
    """Which Slack user decides as which member. The ids of Slack are Slack's own."""

    id: str
    user_id: str
    team_id: str
    slack_user_id: str
    created_at: datetime
