"""The gateway's application in this process, its clock ours to set: thousands of requests in seconds, no sockets."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self, TypeVar
from unittest.mock import patch

import httpx
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher
from starlette.types import ASGIApp, Message

from support.databases import CHOICE, database_url
from support.gateway import SECRET
from toolgate_service.app import build
from toolgate_service.checks.explain import Explanation, explain
from toolgate_service.core import clock, strict_json
from toolgate_service.core.settings import Settings
from toolgate_service.db.database import Database
from toolgate_service.gateway import Gateway

T = TypeVar("T")

TICK = timedelta(milliseconds=1)


class Clock:
    """The gateway's clock. On SQLite it stands still unless it is moved; PostgreSQL has its own, which nobody sets."""

    def __init__(self) -> None:
        self._moment = datetime.now(UTC)

    @property
    def settable(self) -> bool:
        """Whether the gateway asks this clock."""
        return CHOICE.server is None

    def now(self) -> datetime:
        """Return the moment that the gateway believes it is."""
        return self._moment if self.settable else datetime.now(UTC)

    def advance(self, by: timedelta = TICK) -> None:
        """Move on."""
        self._moment += by

    def back_to_present(self) -> None:
        """Begin anew: tokens are also read by a clock that stays as it is."""
        self._moment = datetime.now(UTC)

    @contextmanager
    def ruling(self) -> Iterator[None]:
        """Have every part of the gateway that looks at a clock look at this one."""
        readers = [
            module
            for name, module in sys.modules.items()
            if name.startswith("toolgate_service.") and getattr(module, "utcnow", None) is clock.utcnow
        ]
        patches = [patch.object(module, "utcnow", self.now) for module in readers if self.settable]
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in patches:
                one.stop()


class InsideGateway:
    """The application with its life span, one event loop, and one client.

    Args:
        folder: stands for its data.
        others: settings beside the database, the secret and the plan.
    """

    def __init__(self, folder: Path, **others: Any) -> None:
        given = {"database_url": database_url(folder), "secret": SECRET, "default_plan": "enterprise"}
        self._settings = Settings(**given | others)
        self._loop = asyncio.new_event_loop()
        self._make()

    def _make(self) -> None:
        self._gateway = Gateway(self._settings)
        # Each run registers organizations of its own: what a password costs is held elsewhere.
        cheap = Argon2Hasher(time_cost=1, memory_cost=8, parallelism=1)
        self._gateway.passwords._hasher = PasswordHash((cheap,))
        self._app = build(self._gateway)
        self._span = _Lifespan(self._app)
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self._app), base_url="http://gateway", timeout=60
        )

    def send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Send one request and return its answer."""
        return self._finish(self._client.request(method, path, **request))

    def within(self, work: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
        """Do something to the gateway's database, as one of its jobs does."""
        return self._finish(work(self._gateway.database))

    def explain(self, organization: str, environment: str, body: bytes) -> Explanation:
        """Explain what a check would be answered."""
        asked = strict_json.loads(body)
        assert isinstance(asked, dict)
        return self._finish(
            explain(
                self._gateway,
                self._gateway.rate_limiter,
                self._gateway.rules,
                self._gateway.budgets,
                organization,
                environment,
                asked,
            )
        )

    def restart(self) -> None:
        """End the application and begin it anew on the same data: whatever it kept in memory is gone."""
        self._end()
        self._make()
        self._finish(self._span.begin())

    def _end(self) -> None:
        self._finish(self._client.aclose())
        self._finish(self._span.end())

    def __enter__(self) -> Self:
        self._finish(self._span.begin())
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)


class _Lifespan:
    """What a server says to an application at its beginning and its end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._said: asyncio.Queue[Message] = asyncio.Queue()
        self._heard: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start the application."""
        self._task = asyncio.create_task(self._run())
        await self._say("startup")

    async def end(self) -> None:
        """Stop it."""
        await self._say("shutdown")
        assert self._task is not None
        await self._task

    async def _run(self) -> None:
        await self._app({"type": "lifespan", "asgi": {"version": "3.0"}}, self._said.get, self._heard.put)

    async def _say(self, what: str) -> None:
        await self._said.put({"type": f"lifespan.{what}"})
        heard = await self._heard.get()
        assert heard["type"] == f"lifespan.{what}.complete", heard
