"""The floor: what a server that does nothing costs. `python -m load.floor [POSTGRESQL_URL]` prints its port."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

if TYPE_CHECKING:
    import asyncpg

PATH = "/sdk/check"
#: connections to PostgreSQL, as many as the gateway's checks have
POOL = 8


async def nothing(_: Request) -> JSONResponse:
    """Answer."""
    return JSONResponse({"allowed": True})


def selecting(url: str) -> Starlette:
    """The same with one `SELECT 1` by the gateway's driver, through a pool set up as the gateway's own.

    Args:
        url: The database.
    """
    import asyncpg

    pools: list[asyncpg.Pool[asyncpg.Record]] = []

    @asynccontextmanager
    async def connected(_: Starlette) -> AsyncIterator[None]:
        async with asyncpg.create_pool(url, min_size=POOL, max_size=POOL, reset=_keep) as pool:
            pools.append(pool)
            yield

    async def select(_: Request) -> JSONResponse:
        async with pools[0].acquire(timeout=10) as connection:
            await connection.fetchval("SELECT 1")
        return JSONResponse({"allowed": True})

    return Starlette(routes=[Route(PATH, select, methods=["POST"])], lifespan=connected)


async def _keep(_connection: asyncpg.Connection[asyncpg.Record]) -> None:
    # As in the gateway: the driver's own reset would be a second round trip.
    pass


def main(url: str | None) -> None:
    """Serve as the gateway is served: the same server, loop and parser.

    Args:
        url: PostgreSQL, if something is to be selected from it.
    """
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    app = Starlette(routes=[Route(PATH, nothing, methods=["POST"])]) if url is None else selecting(url)
    config = uvicorn.Config(app, log_level="warning", access_log=False, ws="none")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
