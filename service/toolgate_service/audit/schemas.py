"""What an audit entry looks like on the wire (decisions §3)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel


class AuditEntryView(BaseModel):
    """One change, or one showing of a key: who, what, when, from where.

    `user_id` and `user_email` are null where an API key, the operator or the payment provider acted.
    """

    id: str
    organization_id: str
    environment: str | None
    kind: str
    resource_id: str | None
    user_id: str | None
    user_email: str | None
    changes: Mapping[str, Any] | None
    ip_address: str | None
    created_at: datetime
