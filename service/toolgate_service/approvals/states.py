"""The states of an approval (decisions §5).

    pending ──► approved ──► consumed
       │           ├───────► expired
       │           └───────► cancelled
       ├──────► denied
       ├──────► expired
       ├──────► cancelled
       └──────► replaced, by a request with an edited context

What has no arrow out of it is final. Expiry is the clock's: a row may still say otherwise for a while.
"""

from datetime import datetime

from sqlalchemy import ColumnElement
from sqlmodel import col

from toolgate_service.approvals.models import EXPIRED, OPEN, Approval


def state_of(approval: Approval, moment: datetime) -> str:
    """Return an approval's state by the clock: an open one past its time has expired, whatever the row says."""
    if approval.status in OPEN and approval.expires_at <= moment:
        return EXPIRED
    return approval.status


def stands_at(status: str, moment: datetime) -> ColumnElement[bool]:
    """Return the condition under which an approval has a state at a moment."""
    if status == EXPIRED:
        past = col(Approval.status).in_(OPEN) & (col(Approval.expires_at) <= moment)
        return past | (col(Approval.status) == EXPIRED)
    if status in OPEN:
        return (col(Approval.status) == status) & (col(Approval.expires_at) > moment)
    return col(Approval.status) == status
