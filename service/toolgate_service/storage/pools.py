"""How SQLAlchemy's pools of connections are used."""

from collections.abc import Mapping
from typing import cast

from sqlalchemy import QueuePool
from sqlalchemy.ext.asyncio import AsyncEngine

from toolgate_service.storage.database import Usage


def usage_of(**engines: AsyncEngine) -> Mapping[str, Usage]:
    """Return how each engine's pool is used, by its name."""
    return {name: _usage(engine) for name, engine in engines.items()}


def _usage(engine: AsyncEngine) -> Usage:
    pool = cast("QueuePool", engine.pool)
    return Usage(pool.checkedout(), pool.checkedin())
