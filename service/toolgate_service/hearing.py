"""What a gateway does with news of others: whoever waits in this process is woken, and looks."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from toolgate_service.approvals.hub import DecisionHub
from toolgate_service.storage.database import Database
from toolgate_service.storage.notices import APPROVAL, EVENTS
from toolgate_service.storage.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from toolgate_service.storage.listener import Listener
    from toolgate_service.storage.stalled import StalledSessions


class Hearing:
    """Passes news on.

    Args:
        hub: wakes whoever waits for a decision, and open pages.
        nudge: has the worker look whether anything is to be delivered.
    """

    def __init__(self, hub: DecisionHub, nudge: Callable[[], None]) -> None:
        self._hub = hub
        self._nudge = nudge

    def heard(self, notice: str) -> None:
        """Take a notice; of a kind that a newer version announces nothing is made."""
        match notice.split(" "):
            case [kind, organization_id, approval_id] if kind == APPROVAL:
                self._hub.tell_announced(organization_id, approval_id)
            case [kind] if kind == EVENTS:
                self._nudge()

    def turned(self, hears: bool) -> None:  # noqa: FBT001 - it is what it is called with
        """Take that news is heard from now on, or no more: something may have been missed."""
        self._hub.hears_others = hears
        self._hub.tell_everybody()
        self._nudge()


def listener_of(database: Database, hearing: Hearing) -> "Listener | None":
    """Return what listens to other gateways, not yet started; None where nobody announces anything."""
    if isinstance(database, SqliteDatabase):
        return None
    from toolgate_service.storage.listener import Listener
    from toolgate_service.storage.postgres import PostgresDatabase

    if isinstance(database, PostgresDatabase):
        return Listener(database, hearing.heard, hearing.turned)
    raise TypeError(f"no listener for a {type(database).__name__}")


def stalled_sessions_of(database: Database) -> "StalledSessions | None":
    """Return what ends stalled sessions of other gateways, not yet started; None where there are none."""
    if isinstance(database, SqliteDatabase):
        return None
    from toolgate_service.storage.postgres import PostgresDatabase
    from toolgate_service.storage.stalled import StalledSessions

    return StalledSessions(database) if isinstance(database, PostgresDatabase) else None
