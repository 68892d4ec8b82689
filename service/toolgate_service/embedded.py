"""Embedded gateway: runs inside another program's process, without a network port, for one agent and one local user.

The gateway has an event loop in a thread of its own. Requests go directly to its ASGI application, without a socket.
"""

import asyncio
import secrets
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.types import ASGIApp, Message, Scope

from toolgate_service.accounts.models import FULL, User
from toolgate_service.accounts.repository import find_user_by_email
from toolgate_service.accounts.schemas import Registration
from toolgate_service.accounts.sessions import Caller, open_session
from toolgate_service.agents.models import Agent
from toolgate_service.agents.schemas import NewAgent
from toolgate_service.agents.service import add_agent, add_key
from toolgate_service.app import build
from toolgate_service.core.errors import ApiError, StartError, StorageError, StorageFault
from toolgate_service.core.settings import Settings, load_settings
from toolgate_service.core.settings_sources import log_renamed_settings
from toolgate_service.db.database import ACCOUNTS
from toolgate_service.db.models import PRODUCTION
from toolgate_service.gateway import Gateway
from toolgate_service.organizations.models import ApiKey, Organization
from toolgate_service.organizations.repository import shown_key
from toolgate_service.organizations.service import create_organization
from toolgate_service.permissions.models import Permission
from toolgate_service.permissions.schemas import NewPermission, PermissionChange
from toolgate_service.permissions.service import add_permission, remove_permission, update_permission
from toolgate_service.secret_check import has_no_secret, prepare_database

#: E-mail address of the local user. No such address can exist, because the top-level domain `invalid` is reserved.
LOCAL_USER = "person@embedded.invalid"
ORGANIZATION = "Embedded"


@dataclass(frozen=True, slots=True)
class EmbeddedIdentity:
    """Local user and agent of an embedded gateway, with the agent's API key."""

    user_id: str
    agent_id: str
    api_key: str = field(repr=False)


async def bootstrap(
    gateway: Gateway, agent_name: str, permissions: Sequence[Mapping[str, Any]]
) -> EmbeddedIdentity:
    """Create the organization, user, agent and API key if they do not exist, and set the agent's permissions.

    Args:
        gateway: The gateway. It must be started.
        agent_name: Name of the agent.
        permissions: Complete list of the agent's permissions, each in the format of POST
            /api/agents/{agent_id}/permissions. Permissions that the list does not contain are deleted.

    Raises:
        StartError: The name or a permission is invalid, or a limit of the plan is exceeded.
    """
    try:
        new_agent = NewAgent(name=agent_name)
        wanted = {one.action: one for one in (NewPermission(**fields) for fields in permissions)}
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where, why = problem["loc"][0], problem["msg"].removeprefix("Value error, ")
        raise StartError(f"{'agent' if where == 'name' else where} {why}: {problem['input']!r}") from None
    # No user can sign in with this random password, because only its hash is stored. An operator can set a new password
    # with `toolgate admin reset-password`.
    password = await gateway.passwords.hash(secrets.token_urlsafe(32))
    try:
        async with gateway.database.writing(ACCOUNTS) as session:
            caller = await _get_or_create_user(session, gateway, password)
            agent = await _get_or_create_agent(session, gateway, caller, new_agent)
            await _set_permissions(session, caller, agent, wanted)
            key = await _get_or_create_key(session, gateway, caller, agent)
            return EmbeddedIdentity(caller.user_id, agent.id, key)
    except ApiError as error:
        raise StartError(str(error.detail)) from error


async def create_token(gateway: Gateway, user_id: str) -> str:
    """Return a new access token of the local user. A client needs it to decide approval requests."""
    async with gateway.database.writing(ACCOUNTS) as session:
        user = (await session.exec(select(User).where(User.id == user_id))).one()
        return (await open_session(session, gateway.vault, user, FULL)).access_token


async def _get_or_create_user(session: AsyncSession, gateway: Gateway, password_hash: str) -> Caller:
    if await find_user_by_email(session, LOCAL_USER) is None:
        registration = Registration(
            email=LOCAL_USER, password=secrets.token_urlsafe(32), organization_name=ORGANIZATION
        )
        plan = gateway.settings.default_plan
        await create_organization(session, gateway.vault, registration, password_hash, plan)
    query = select(User, Organization).where(
        User.email == LOCAL_USER, col(User.removed_at).is_(None), Organization.id == User.organization_id
    )
    user, organization = (await session.exec(query)).one()
    return Caller(
        user_id=user.id,
        organization_id=organization.id,
        session_id="",
        version=user.version,
        role=user.role,
        scope=FULL,
        plan=organization.plan,
        organization_is_active=organization.is_active,
        ip_address=None,
    )


async def _get_or_create_agent(
    session: AsyncSession, gateway: Gateway, caller: Caller, new: NewAgent
) -> Agent:
    query = (
        select(Agent)
        .where(
            Agent.organization_id == caller.organization_id,
            Agent.environment == PRODUCTION,
            Agent.name == new.name,
            col(Agent.deleted_at).is_(None),
        )
        .order_by(col(Agent.created_at), col(Agent.id))
    )
    # Do not enable a disabled agent, because a user has disabled it on purpose.
    found = (await session.exec(query)).first()
    if found is not None:
        return found
    return await add_agent(session, gateway.plans, caller, PRODUCTION, new)


async def _set_permissions(
    session: AsyncSession, caller: Caller, agent: Agent, wanted: Mapping[str, NewPermission]
) -> None:
    query = select(Permission).where(
        Permission.agent_id == agent.id, Permission.organization_id == agent.organization_id
    )
    present = {one.action: one for one in (await session.exec(query)).all()}
    for action, permission in present.items():
        if action not in wanted:
            await remove_permission(session, caller, permission)
            continue
        # Update the permission only if a value differs, because every update adds an audit event and a webhook event.
        fields = wanted[action].model_dump(exclude={"action"})
        changes = {name: value for name, value in fields.items() if getattr(permission, name) != value}
        if changes:
            await update_permission(session, caller, permission, PermissionChange(**changes))
    for action, new in wanted.items():
        if action not in present:
            await add_permission(session, caller, agent, new)


async def _get_or_create_key(session: AsyncSession, gateway: Gateway, caller: Caller, agent: Agent) -> str:
    query = (
        select(ApiKey)
        .where(
            ApiKey.organization_id == agent.organization_id,
            ApiKey.agent_id == agent.id,
            col(ApiKey.revoked_at).is_(None),
        )
        .order_by(col(ApiKey.created_at), col(ApiKey.id))
    )
    # Use an existing key again, because the fingerprints of redacted arguments depend on the key. Keys that were
    # encrypted with another secret cannot be read and are skipped.
    for key in (await session.exec(query)).all():
        if text := shown_key(gateway.vault, key):
            return text
    return (await add_key(session, gateway.vault, caller, agent)).api_key


#: HTTP response: status, headers with lower-case names, and body.
Response: TypeAlias = tuple[int, dict[str, str], bytes]


class ASGIRequest:
    """One request to an ASGI application, which is called directly instead of over a connection.

    If the client disconnects, the application is not cancelled but receives the ASGI message `http.disconnect`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._disconnected = asyncio.Event()
        self._status = 500
        self._headers: dict[str, str] = {}
        self._body = bytearray()

    def disconnect(self) -> None:
        """Inform the application that the client has disconnected."""
        self._disconnected.set()

    async def send(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Response:
        """Send the request to the application, and return its complete response.

        Args:
            method: HTTP method.
            target: Path and query of the URL, percent-encoded.
            headers: Request headers.
            body: Request body; None if it is empty.
        """
        content = body or b""
        messages = iter([{"type": "http.request", "body": content, "more_body": False}])

        async def receive() -> Message:
            message = next(messages, None)
            if message is None:
                await self._disconnected.wait()
                return {"type": "http.disconnect"}
            return message

        await self._app(_scope(method, target, headers, len(content)), receive, self._receive_response)
        return self._status, self._headers, bytes(self._body)

    async def _receive_response(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            pairs = message.get("headers", ())
            self._headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in pairs}
        elif message["type"] == "http.response.body":
            self._body += message.get("body", b"")


def _scope(method: str, target: str, headers: Mapping[str, str], length: int) -> Scope:
    path, _, query = target.partition("?")
    pairs = [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in {"host": "embedded", **headers, "content-length": str(length)}.items()
    ]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": pairs,
        # The request does not come over a network connection, so it has no addresses.
        "client": None,
        "server": None,
    }


#: Maximum time in seconds that the gateway waits for unfinished requests when it closes.
GRACE = 5

#: Path that stands for a temporary database file, which is removed when the gateway closes.
MEMORY = ":memory:"


def open_embedded(path: str, agent: str, permissions: Sequence[Mapping[str, Any]]) -> "Embedded":
    """Start an embedded gateway with this database file, and return it as soon as it accepts requests.

    Args:
        path: SQLite database file. If it is missing, it is created. ``:memory:`` stands for a temporary file.
        agent: Name of the agent. If no agent has this name, an agent is created.
        permissions: Complete list of the agent's permissions, each in the format of POST
            /api/agents/{agent_id}/permissions. Permissions that the list does not contain are deleted.

    Raises:
        StartError: A setting, an argument or the file cannot be used.
    """
    return Embedded(path, agent, permissions)


class Embedded:
    """Gateway that runs in a thread of the current process.

    Attributes:
        agent_id: Id of the agent. The gateway creates the agent when it starts, if it does not exist yet.
        api_key: API key that is valid only for this agent.
    """

    def __init__(self, path: str, agent: str, permissions: Sequence[Mapping[str, Any]]) -> None:
        self._folder: TemporaryDirectory[str] | None = None
        settings = self._settings(path)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._requests: set[asyncio.Task[Response]] = set()
        self._token: str | None = None
        ready: Future[EmbeddedIdentity] = Future()
        # The thread is a daemon, because a gateway that was not closed must not keep the Python process running.
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
        """Send a request to the gateway. Cancelling the future counts as a disconnect of the client.

        Raises:
            RuntimeError: The gateway is closed.
        """
        return self._submit(self._send(method, target, headers, body))

    def decide(self, method: str, target: str, body: bytes | None) -> Future[Response]:
        """Send a request to the management API as the local user, for example to decide an approval request.

        Raises:
            RuntimeError: The gateway is closed.
        """
        return self._submit(self._send_as_user(method, target, body))

    def end(self) -> None:
        """Start to close the gateway, and return immediately. Any thread may call this method, also repeatedly."""
        if not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:
                # Another thread has closed the event loop in the meantime.
                return

    def close(self) -> None:
        """Close the gateway: end long polls, wait for unfinished requests, and close the database file.

        The method may be called more than once.
        """
        self.end()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _submit(self, work: Coroutine[Any, Any, Response]) -> Future[Response]:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            # Close the coroutine, because Python would otherwise warn that it was never awaited.
            work.close()
            raise

    def _settings(self, path: str) -> Settings:
        fixed = {"default_plan": "enterprise", "registration": "closed"}
        if path == MEMORY:
            self._folder = TemporaryDirectory(prefix="toolgate-")
            path = str(Path(self._folder.name) / "toolgate.db")
            # Do not store the secret in a file: it is needed only for the temporary database, which does not outlive
            # the process.
            fixed["secret"] = secrets.token_urlsafe(48)
        fixed["database_url"] = f"sqlite:///{quote(str(Path(path).expanduser().absolute()))}"
        try:
            settings = load_settings(fixed)
            log_renamed_settings(settings.secrets_dir)
        except BaseException:
            self._remove_folder()
            raise
        return settings

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
        except BaseException as error:  # noqa: BLE001 - passed to the opening thread, which raises it
            ready.set_exception(error)
            return
        try:
            self._gateway, self._app = gateway, build(gateway)
            identity = await bootstrap(gateway, agent, permissions)
        except (SQLAlchemyError, StorageFault) as error:
            cause = getattr(error, "orig", None) or error
            ready.set_exception(
                StartError(f"the database {str(settings.database_url)!r} reported an error: {cause}")
            )
        except BaseException as error:  # noqa: BLE001 - passed to the opening thread, which raises it
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
            # Create a new token and repeat the request. The process can run longer than the week for which a token is
            # valid.
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
        # No secret exists yet. Raise an error if the database already contains API keys: the gateway would otherwise
        # create a new secret, which could not decrypt these keys.
        await prepare_database(settings)
    gateway = Gateway(settings)
    try:
        await gateway.start()
    except BaseException:
        await gateway.database.close()
        gateway.passwords.close()
        raise
    return gateway
