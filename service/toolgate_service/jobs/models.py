"""Table for the maintenance lease and for the detection of clock jumps."""

from datetime import datetime

from sqlmodel import Field

from toolgate_service.db.models import Id, Table, Timestamp


class Heartbeat(Table, table=True):
    """Row with the last heartbeat of a job and the gateway that holds the job's lease."""

    __tablename__ = "heartbeats"

    job: str = Field(primary_key=True, max_length=20)
    #: id of the gateway's scheduler that holds the lease; `held_until` is the end of the lease
    holder: str | None = Field(default=None, sa_type=Id)
    held_until: datetime | None = Field(default=None, sa_type=Timestamp)
    beaten_at: datetime = Field(sa_type=Timestamp)
    #: time since which the clock has not jumped
    steady_since: datetime = Field(sa_type=Timestamp)
