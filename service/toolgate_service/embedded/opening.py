"""Opening an embedded gateway: its file, its thread, its loop, and its orderly end."""

import asyncio
import secrets
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp

from toolgate_service.app import build
from toolgate_service.embedded.call import Answered, Call
from toolgate_service.embedded.household import Household, settle_in, token_of
from toolgate_service.errors import StartError, StorageError, StorageFault
from toolgate_service.gateway import Gateway
from toolgate_service.sealed import has_no_secret, verified_vault
from toolgate_service.settings import Settings, load_settings
from toolgate_service.storage.database import open_database

#: seconds that requests under way are given when the gateway ends
GRACE = 5

#: what stands for a file that is gone when the gateway ends
MEMORY = ":memory:"


def open_embedded(path: str, agent: str, permissions: Sequence[Mapping[str, Any]]) -> "Embedded":
    """Open the gateway on a file and return once it answers.

    Args:
        path: the database's file, made if it is missing; ``:memory:`` is one that is gone afterwards.
        agent: the agent's name; the one of that name is found again.
        permissions: what the agent may do, each as POST /api/agents/{agent_id}/permissions takes it; nothing else.

    Raises:
        StartError: a setting, an argument or the file cannot be used; the message says why, and the cure.
    """
    return Embedded(path, agent, permissions)


class Embedded:
    """A gateway on a thread of its own.

    Attributes:
        agent_id: the agent.
        api_key: a key that acts as the agent alone.
    """

    def __init__(self, path: str, agent: str, permissions: Sequence[Mapping[str, Any]]) -> None:
        self._folder: TemporaryDirectory[str] | None = None
        settings = self._settings(path)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._calls: set[asyncio.Task[Answered]] = set()
        self._token: str | None = None
        ready: Future[Household] = Future()
        # A daemon: whoever forgets to close must not keep the interpreter from ending.
        self._thread = threading.Thread(
            target=self._run,
            args=(settings, agent, permissions, ready),
            name="toolgate-embedded",
            daemon=True,
        )
        self._thread.start()
        try:
            household = ready.result()
        except BaseException:
            self._thread.join()
            raise
        self._user_id, self.agent_id, self.api_key = (
            household.user_id,
            household.agent_id,
            household.api_key,
        )

    def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Future[Answered]:
        """Send one request; a cancelled future hangs up.

        Raises:
            RuntimeError: the gateway has ended.
        """
        return self._begin(self._answer(method, target, headers, body))

    def decide(self, method: str, target: str, body: bytes | None) -> Future[Answered]:
        """Send one request to the management surface as the person at this machine.

        Raises:
            RuntimeError: the gateway has ended.
        """
        return self._begin(self._as_person(method, target, body))

    def end(self) -> None:
        """Begin to end, and wait for nothing; may be called from anywhere, and again."""
        if not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:
                # It has ended meanwhile.
                return

    def close(self) -> None:
        """End: answer the long polls, finish what is under way, close the file; may be called again."""
        self.end()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _begin(self, work: Coroutine[Any, Any, Answered]) -> Future[Answered]:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            # Otherwise Python warns, at some other moment, that nobody awaited it.
            work.close()
            raise

    def _settings(self, path: str) -> Settings:
        # Nobody registers by a port that is not there.
        fixed = {"default_plan": "enterprise", "registration": "closed"}
        if path == MEMORY:
            self._folder = TemporaryDirectory(prefix="toolgate-")
            path = str(Path(self._folder.name) / "toolgate.db")
            # What is gone tomorrow needs no secret that stays.
            fixed["secret"] = secrets.token_urlsafe(48)
        fixed["database_url"] = f"sqlite:///{quote(str(Path(path).expanduser().absolute()))}"
        try:
            return load_settings(fixed)
        except BaseException:
            self._clean()
            raise

    def _run(
        self,
        settings: Settings,
        agent: str,
        permissions: Sequence[Mapping[str, Any]],
        ready: Future[Household],
    ) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._live(settings, agent, permissions, ready))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()
            self._clean()

    async def _live(
        self,
        settings: Settings,
        agent: str,
        permissions: Sequence[Mapping[str, Any]],
        ready: Future[Household],
    ) -> None:
        try:
            gateway = await _started(settings)
        except (StorageError, StorageFault) as error:
            ready.set_exception(StartError(str(error)))
            return
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits for it
            ready.set_exception(error)
            return
        try:
            self._gateway, self._app = gateway, build(gateway)
            household = await settle_in(gateway, agent, permissions)
        except (SQLAlchemyError, StorageFault) as error:
            cause = getattr(error, "orig", None) or error
            ready.set_exception(StartError(f"the database {str(settings.database_url)!r} refused: {cause}"))
        except BaseException as error:  # noqa: BLE001 - likewise
            ready.set_exception(error)
        else:
            ready.set_result(household)
            await self._stop.wait()
        gateway.hub.close()
        if self._calls:
            _, late = await asyncio.wait(self._calls, timeout=GRACE)
            for call in late:
                call.cancel()
        await gateway.stop()

    async def _answer(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answered:
        app: ASGIApp = self._app
        call = Call(app)
        task = asyncio.create_task(call.answer(method, target, headers, body))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            call.hang_up()
            raise

    async def _as_person(self, method: str, target: str, body: bytes | None) -> Answered:
        answered = await self._with_token(method, target, body)
        if answered[0] == 401:  # noqa: PLR2004 - the status says it
            # A token lives a week, and a notebook may live longer.
            self._token = None
            answered = await self._with_token(method, target, body)
        return answered

    async def _with_token(self, method: str, target: str, body: bytes | None) -> Answered:
        if self._token is None:
            self._token = await token_of(self._gateway, self._user_id)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        return await self._answer(method, target, headers, body)

    def _clean(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()


async def _started(settings: Settings) -> Gateway:
    if has_no_secret(settings):
        # The gateway would create a secret, which could not open the keys of a database that is there.
        await _refuse_lost_secret(settings)
    gateway = Gateway(settings)
    try:
        await gateway.start()
    except BaseException:
        await gateway.database.close()
        gateway.passwords.close()
        raise
    return gateway


async def _refuse_lost_secret(settings: Settings) -> None:
    database = open_database(settings.database_url)
    try:
        await database.start(migrate=settings.migrate == "auto")
        await verified_vault(database, settings)
    finally:
        await database.close()
