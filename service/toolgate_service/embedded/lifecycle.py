"""Open and close an embedded gateway, which runs in an event loop on a thread of its own."""

import asyncio
import secrets
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp

from toolgate_service.app import build
from toolgate_service.core.errors import StartError, StorageError, StorageFault
from toolgate_service.core.settings import Settings, load_settings
from toolgate_service.db.database import open_database
from toolgate_service.embedded.bootstrap import EmbeddedIdentity, bootstrap, create_token
from toolgate_service.embedded.client import ASGIRequest, Response
from toolgate_service.gateway import Gateway
from toolgate_service.secret_check import has_no_secret, verified_vault

#: seconds that requests in progress have to finish when the gateway closes
GRACE = 5

#: path that stands for a temporary file, removed when the gateway closes
MEMORY = ":memory:"


def open_embedded(path: str, agent: str, permissions: Sequence[Mapping[str, Any]]) -> "Embedded":
    """Open the gateway on a file and return when it accepts requests.

    Args:
        path: File of the SQLite database, created if it is missing; ``:memory:`` is a temporary file.
        agent: Name of the agent, created if there is none of that name.
        permissions: All permissions of the agent, each in the format of POST /api/agents/{agent_id}/permissions.

    Raises:
        StartError: A setting, an argument or the file cannot be used.
    """
    return Embedded(path, agent, permissions)


class Embedded:
    """A gateway on a thread of its own.

    Attributes:
        agent_id: Id of the agent.
        api_key: API key that is restricted to the agent.
    """

    def __init__(self, path: str, agent: str, permissions: Sequence[Mapping[str, Any]]) -> None:
        self._folder: TemporaryDirectory[str] | None = None
        settings = self._settings(path)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._requests: set[asyncio.Task[Response]] = set()
        self._token: str | None = None
        ready: Future[EmbeddedIdentity] = Future()
        # A daemon thread: a gateway that was not closed must not keep the interpreter running.
        self._thread = threading.Thread(
            target=self._run,
            args=(settings, agent, permissions, ready),
            name="toolgate-embedded",
            daemon=True,
        )
        self._thread.start()
        try:
            identity = ready.result()
        except BaseException:
            self._thread.join()
            raise
        self._user_id, self.agent_id, self.api_key = identity.user_id, identity.agent_id, identity.api_key

    def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Future[Response]:
        """Send one request; cancelling the future disconnects.

        Raises:
            RuntimeError: The gateway is closed.
        """
        return self._submit(self._send(method, target, headers, body))

    def decide(self, method: str, target: str, body: bytes | None) -> Future[Response]:
        """Send one request to the management API as the local user.

        Raises:
            RuntimeError: The gateway is closed.
        """
        return self._submit(self._send_as_user(method, target, body))

    def end(self) -> None:
        """Start to close, without waiting. May be called on any thread, and repeatedly."""
        if not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:
                # The loop was closed in the meantime.
                return

    def close(self) -> None:
        """Answer long polls, finish requests in progress, and close the file. May be called repeatedly."""
        self.end()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _submit(self, work: Coroutine[Any, Any, Response]) -> Future[Response]:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            # Otherwise Python warns later that the coroutine was never awaited.
            work.close()
            raise

    def _settings(self, path: str) -> Settings:
        fixed = {"default_plan": "enterprise", "registration": "closed"}
        if path == MEMORY:
            self._folder = TemporaryDirectory(prefix="toolgate-")
            path = str(Path(self._folder.name) / "toolgate.db")
            # A temporary database needs no stored secret.
            fixed["secret"] = secrets.token_urlsafe(48)
        fixed["database_url"] = f"sqlite:///{quote(str(Path(path).expanduser().absolute()))}"
        try:
            return load_settings(fixed)
        except BaseException:
            self._remove_folder()
            raise

    def _run(
        self,
        settings: Settings,
        agent: str,
        permissions: Sequence[Mapping[str, Any]],
        ready: Future[EmbeddedIdentity],
    ) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve(settings, agent, permissions, ready))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()
            self._remove_folder()

    async def _serve(
        self,
        settings: Settings,
        agent: str,
        permissions: Sequence[Mapping[str, Any]],
        ready: Future[EmbeddedIdentity],
    ) -> None:
        try:
            gateway = await _start_gateway(settings)
        except (StorageError, StorageFault) as error:
            ready.set_exception(StartError(str(error)))
            return
        except BaseException as error:  # noqa: BLE001 - raised in the thread that opens the gateway
            ready.set_exception(error)
            return
        try:
            self._gateway, self._app = gateway, build(gateway)
            identity = await bootstrap(gateway, agent, permissions)
        except (SQLAlchemyError, StorageFault) as error:
            cause = getattr(error, "orig", None) or error
            ready.set_exception(StartError(f"the database {str(settings.database_url)!r} refused: {cause}"))
        except BaseException as error:  # noqa: BLE001 - as above
            ready.set_exception(error)
        else:
            ready.set_result(identity)
            await self._stop.wait()
        gateway.notifier.close()
        if self._requests:
            _, late = await asyncio.wait(self._requests, timeout=GRACE)
            for task in late:
                task.cancel()
        await gateway.stop()

    async def _send(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Response:
        app: ASGIApp = self._app
        request = ASGIRequest(app)
        task = asyncio.create_task(request.send(method, target, headers, body))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            request.disconnect()
            raise

    async def _send_as_user(self, method: str, target: str, body: bytes | None) -> Response:
        response = await self._send_with_token(method, target, body)
        if response[0] == HTTPStatus.UNAUTHORIZED:
            # A token is valid for a week; the process may run longer.
            self._token = None
            response = await self._send_with_token(method, target, body)
        return response

    async def _send_with_token(self, method: str, target: str, body: bytes | None) -> Response:
        if self._token is None:
            self._token = await create_token(self._gateway, self._user_id)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        return await self._send(method, target, headers, body)

    def _remove_folder(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()


async def _start_gateway(settings: Settings) -> Gateway:
    if has_no_secret(settings):
        # The gateway would create a new secret, which cannot open the keys of an existing database.
        await _check_secret_is_not_lost(settings)
    gateway = Gateway(settings)
    try:
        await gateway.start()
    except BaseException:
        await gateway.database.close()
        gateway.passwords.close()
        raise
    return gateway


async def _check_secret_is_not_lost(settings: Settings) -> None:
    database = open_database(settings.database_url)
    try:
        await database.start(migrate=settings.migrate == "auto")
        await verified_vault(database, settings)
    finally:
        await database.close()
