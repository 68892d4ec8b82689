"""A synchronous standby of a PostgreSQL server of the tests."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Self

from support.databases import finished
from support.ports import reserve_port
from support.postgres import PREFIX, Cluster, _locked


class Standby(Cluster):
    """A copy that follows another server, in a `with` block; its primary waits for it at every commit.

    Args:
        primary: runs already.
    """

    def __init__(self, primary: Cluster) -> None:
        super().__init__(primary.installation, fsync=True)
        self._primary = primary

    def start(self) -> Self:
        """Copy the primary, follow it, and return once it waits for this standby."""
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            self._lock = _locked(self.folder)
            if os.getuid() == 0:
                self._make_reachable()
            self._run("pg_basebackup", "-d", self._primary.url(), "-D", "data", "-R", "-c", "fast")
            self.port = reserve_port()
            assert self._listens(), (self.folder / "said").read_text()
            finished(_wait_for_standby(self._primary.url()))
        except BaseException:
            self.stop()
            raise
        return self

    def promote(self) -> None:
        """Make it the primary."""
        finished(_promote(self.url()))

    @staticmethod
    def can_be_made(primary: Cluster) -> bool:
        """Whether the installation has what copies a server."""
        return shutil.which("pg_basebackup", path=str(primary.installation.programs)) is not None


async def _wait_for_standby(url: str) -> None:
    import asyncpg

    from support.waiting import eventually

    connection = await asyncpg.connect(url)
    try:
        await connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        await connection.execute("SELECT pg_reload_conf()")

        async def is_synchronous() -> bool:
            return bool(
                await connection.fetchval("SELECT true FROM pg_stat_replication WHERE sync_state = 'sync'")
            )

        await eventually(is_synchronous)
    finally:
        await connection.close()


async def _promote(url: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        assert await connection.fetchval("SELECT pg_promote(true, 60)")
    finally:
        await connection.close()
