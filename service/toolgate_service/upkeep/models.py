"""Who does the upkeep, and the clock it was last done by."""

from datetime import datetime

from sqlmodel import Field

from toolgate_service.storage.base import Table
from toolgate_service.storage.types import Id, Timestamp


class Heartbeat(Table, table=True):
    """A job's last sign of life."""

    __tablename__ = "heartbeats"

    job: str = Field(primary_key=True, max_length=20)
    #: the gateway that does the job, and until when no other does
    holder: str | None = Field(default=None, sa_type=Id)
    held_until: datetime | None = Field(default=None, sa_type=Timestamp)
    beaten_at: datetime = Field(sa_type=Timestamp)
    #: since when the clock has not jumped
    steady_since: datetime = Field(sa_type=Timestamp)
