"""The gateway's parts, made once and shared by every request."""

from typing import Annotated

from fastapi import Depends, Request

from toolgate_service.accounts.passwords import Passwords
from toolgate_service.approvals.hub import DecisionHub
from toolgate_service.hotpath.rates import MemoryWindows, RateWindows
from toolgate_service.hotpath.sqlite import SqliteLogStore, SqliteReader
from toolgate_service.hotpath.writer import LogWriter
from toolgate_service.settings import Settings
from toolgate_service.storage.sqlite import SqliteDatabase
from toolgate_service.vault import Vault


class Gateway:
    """Everything a request may need.

    Raises:
        StorageError: the database or the secret cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.plans = settings.plans
        self.database = SqliteDatabase(settings.database_url)
        self.vault = Vault(settings.secret_bytes())
        self.passwords = Passwords(settings.login_threads, settings.login_queue)
        self.rates: RateWindows = MemoryWindows()
        self.hub = DecisionHub()
        self.reader = SqliteReader(self.database.path)
        self.log_writer = LogWriter(SqliteLogStore(self.database.path), self.database.write_turn)

    async def start(self) -> None:
        """Open the database, bring it up to date, and begin to take log entries.

        Raises:
            StorageError: the database cannot be used.
        """
        await self.database.start()
        self.reader.open()
        await self.log_writer.start()

    async def stop(self) -> None:
        """Write what waits, then close everything."""
        await self.log_writer.stop()
        self.reader.close()
        await self.database.close()
        self.passwords.close()


async def _gateway(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


GatewayDep = Annotated[Gateway, Depends(_gateway)]
