"""Counts of log entries and approval requests, each once under each subject, in the transaction that stores it.

Moments are whole minutes, hours and days since the epoch, in UTC, so that sums over any of them are one division away.
"""

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from toolgate_service.storage.base import Table, in_environment, one_of
from toolgate_service.storage.types import Id

#: whose entries are counted: everybody's, one agent's, those for one action
ALL = "all"
AGENT = "agent"
ACTION = "action"
SUBJECTS = (ALL, AGENT, ACTION)

#: minutes in
MINUTE = 1
HOUR = 60
DAY = 24 * HOUR

#: the column of approval requests
HELD = "held"
#: the columns that count, by the status of the entries in them; a retry of a held call logs `pending` again, so `held`
#: counts the approval requests themselves
COUNTED = {"success": "succeeded", "failed": "failed", "denied": "blocked", "pending": HELD}


class LogCount(Table, table=True):
    """Entries of a minute or of an hour.

    The writer counts everybody's by the minute, an agent's and an action's by the hour. The upkeep folds minutes into
    hours and the others into days once they are over: nothing is ever counted in two places.
    """

    __tablename__ = "log_counts"
    __table_args__ = (
        in_environment(),
        one_of("subject", SUBJECTS),
    )

    organization_id: str = Field(primary_key=True, sa_type=Id)
    environment: str = Field(primary_key=True, max_length=10)
    subject: str = Field(primary_key=True, max_length=10)
    #: how long it is counted for, in minutes: 1 or 60
    span: int = Field(primary_key=True)
    #: minutes since the epoch
    starts: int = Field(primary_key=True)
    #: the agent's id, or the action; empty for everybody's
    name: str = Field(primary_key=True, max_length=255)
    succeeded: int = Field(sa_type=BigInteger)
    failed: int = Field(sa_type=BigInteger)
    blocked: int = Field(sa_type=BigInteger)
    held: int = Field(sa_type=BigInteger)


class DayCount(Table, table=True):
    """Entries of one agent, or for one action, on a day."""

    __tablename__ = "day_counts"
    __table_args__ = (
        in_environment(),
        one_of("subject", (AGENT, ACTION)),
        # Who did most on a day.
        Index("ix_day_counts_most", "organization_id", "environment", "subject", "day", "total"),
        # Read in great numbers, and by no request written: on SQLite the rows stand in their key. Adding to a row takes
        # two and a half times as long there, which is why the table above has none of it.
        {"sqlite_with_rowid": False},
    )

    organization_id: str = Field(primary_key=True, sa_type=Id)
    environment: str = Field(primary_key=True, max_length=10)
    subject: str = Field(primary_key=True, max_length=10)
    #: the agent's id, or the action
    name: str = Field(primary_key=True, max_length=255)
    #: days since the epoch
    day: int = Field(primary_key=True)
    succeeded: int = Field(sa_type=BigInteger)
    failed: int = Field(sa_type=BigInteger)
    blocked: int = Field(sa_type=BigInteger)
    held: int = Field(sa_type=BigInteger)
    #: all of them
    total: int = Field(sa_type=BigInteger)
