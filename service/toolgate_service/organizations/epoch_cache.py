"""Cache with one value per environment, which is valid until the epoch (data version) of the environment changes."""

import asyncio
from abc import ABC, abstractmethod
from typing import Generic, TypeAlias, TypeVar

from sqlalchemy import bindparam
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.context import AuthContext
from toolgate_service.db.database import Database
from toolgate_service.organizations.models import Epoch

#: maximum number of environments whose data is cached
CACHE_SIZE = 1_000

#: id of an organization and name of one of its environments
Tenant: TypeAlias = tuple[str, str]

T = TypeVar("T")

_EPOCH = select(Epoch.epoch).where(
    col(Epoch.organization_id) == bindparam("organization_id"),
    col(Epoch.environment) == bindparam("environment"),
)


class EpochCache(ABC, Generic[T]):
    """Cache of one value for each environment.

    A cached value is valid while the epoch of its environment, a version number of its data, is unchanged. Every change
    of the data increases the epoch in the same transaction.

    Args:
        database: Database of the gateway.
        empty: Value for an environment without data. In this case, the cache does not query the database.
    """

    def __init__(self, database: Database, empty: T) -> None:
        self._database = database
        self._empty = empty
        self._values: dict[Tenant, tuple[int, T]] = {}
        self._loading: dict[Tenant, asyncio.Lock] = {}

    @abstractmethod
    def has_data(self, auth: AuthContext) -> bool:
        """Return whether the environment of an authentication context has data to read."""

    @abstractmethod
    async def read(self, session: AsyncSession, tenant: Tenant, values: dict[str, str]) -> T:
        """Read the data of an environment. `values` are the bind parameters `organization_id` and `environment`."""

    def forget(self, tenant: Tenant) -> None:
        """Discard the data that a subclass keeps for an environment in addition to the cached value."""

    async def find(self, auth: AuthContext) -> T:
        """Return the data of the environment at the epoch of the authentication context, or at a later epoch."""
        if not self.has_data(auth):
            return self._empty
        tenant = (auth.organization_id, auth.environment)
        cached = self._cached(tenant, auth.epoch)
        if cached is not None:
            return cached
        # After a change of the data, let only one of several concurrent checks read it.
        lock = self._loading.setdefault(tenant, asyncio.Lock())
        async with lock:
            cached = self._cached(tenant, auth.epoch)
            if cached is not None:
                return cached
            async with self._database.reading() as session:
                return await self.load(session, auth)

    async def load(self, session: AsyncSession, auth: AuthContext) -> T:
        """Return the data of the environment. If it is not cached, read it in the transaction of `session`.

        `auth` must have been read in the same transaction.
        """
        if not self.has_data(auth):
            return self._empty
        tenant = (auth.organization_id, auth.environment)
        cached = self._cached(tenant, auth.epoch)
        if cached is not None:
            return cached
        values = {"organization_id": auth.organization_id, "environment": auth.environment}
        # Read the epoch before the data. If the data changes between the two reads, it is stored with the earlier
        # epoch, and the next check reads it again.
        epoch = (await session.exec(_EPOCH, params=values)).one()
        value = await self.read(session, tenant, values)
        if tenant not in self._values and len(self._values) >= CACHE_SIZE:
            oldest = next(iter(self._values))
            del self._values[oldest]
            self._loading.pop(oldest, None)
            self.forget(oldest)
        self._values[tenant] = (epoch, value)
        return value

    def _cached(self, tenant: Tenant, epoch: int | None) -> T | None:
        cached = self._values.get(tenant)
        if cached is None or epoch is None or cached[0] < epoch:
            return None
        return cached[1]
