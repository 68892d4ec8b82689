"""A PostgreSQL server that cannot be used just now, told from a request that cannot be served."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.exc import DBAPIError

from toolgate_service.storage.postgres_connection import DRIVER_FAULTS
from toolgate_service.storage.races import fault

#: Classes of SQLSTATE that are no fault of the statement: the connection, the login, the database gone, a lost race,
#: no room, a lock that was not given, a shutdown or a time-out, the system; and a server that has become a standby.
UNUSABLE = ("08", "28", "3D", "40", "53", "55", "57", "58", "25006")


@asynccontextmanager
async def faults_told() -> AsyncIterator[None]:
    """Raise what the server failed at as what it is.

    Raises:
        StorageFault: the server cannot be used; the request may be repeated.
        LostRace: the transaction lost against another one, and may be done anew at once.
    """
    try:
        yield
    except DRIVER_FAULTS as error:
        # Connecting raises these, and a connection that has just ended: SQLAlchemy has its own names for all others.
        raise fault(f"PostgreSQL: {type(error).__name__}", getattr(error, "sqlstate", None)) from None
    except DBAPIError as error:
        code = str(getattr(error.orig, "sqlstate", None) or "")
        if not error.connection_invalidated and not code.startswith(UNUSABLE):
            raise
        # Not the driver's own words: they quote rows, and rows hold contexts.
        raise fault(f"PostgreSQL: {code or type(error.orig).__name__}", code) from None
