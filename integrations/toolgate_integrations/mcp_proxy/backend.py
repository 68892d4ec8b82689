"""Connection from the proxy to the MCP server behind it."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio.abc import TaskGroup
from mcp import Client, ClientSession, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp_types import INTERNAL_ERROR, Implementation
from pydantic import ValidationError

from toolgate import ConfigurationError
from toolgate_integrations.mcp_proxy.forwarding import Upward

__all__ = ["Address", "Backend", "Command", "first_of"]

logger = logging.getLogger("toolgate")
# Reading has no timeout, because a server keeps the response open while its tool runs.
_TIMEOUT: Final = httpx2.Timeout(30.0, read=None)


@dataclass(frozen=True, slots=True)
class Command:
    """A server that the proxy starts as a process, and reaches over its standard input and output.

    Attributes:
        words: The command and its arguments.
        environment: Environment variables for the server, in addition to the few that every server receives.
    """

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def told(self) -> str:
        """Name of the server for error messages: its command."""
        return repr(self.words[0])

    def connect(self, ended: anyio.Event) -> AbstractAsyncContextManager[Any]:
        """Start the server and connect to it; `ended` is set when the server closes the connection."""
        return _watched(
            stdio_client(
                StdioServerParameters(
                    command=self.words[0], args=list(self.words[1:]), env=dict(self.environment)
                )
            ),
            ended,
        )


@dataclass(frozen=True, slots=True)
class Address:
    """A remote server that uses the streamable HTTP transport.

    Attributes:
        url: URL of the server.
        headers: Headers of every request to the server.

    Raises:
        ConfigurationError: The URL is not an HTTP URL, has no host, or contains user information.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not _is_address(self.url):
            raise ConfigurationError(
                f"the server's address is {self.told}; use an address such as 'https://mcp.example.com/mcp', without a "
                "user or a password in it"
            )

    @property
    def told(self) -> str:
        """Name of the server for error messages: its URL without user information and query, which may contain secrets."""
        return repr(self.url.rpartition("@")[2].partition("?")[0])

    def connect(self, ended: anyio.Event) -> AbstractAsyncContextManager[Any]:  # noqa: ARG002 - the end of a remote server cannot be detected
        """Connect to the remote server; `ended` is never set."""
        return _reached(self)


class Backend:
    """Connection to one server; if the connection to a remote server is lost, the next request opens it again.

    Args:
        place: Command or address of the server.
        start_timeout: Seconds to wait for the first response of the server.

    Attributes:
        ended: Set when the server has ended and is not connected again, or could not be reached the first time.
        failure: The reason why there is no connection, or None.
    """

    def __init__(self, place: Command | Address, start_timeout: float) -> None:
        self.ended = anyio.Event()
        self.failure: str | None = None
        self._place = place
        self._start_timeout = start_timeout
        self._upward: Upward | None = None
        self._wanted, self._settled, self._gone = anyio.Event(), anyio.Event(), anyio.Event()
        self._client: Client | None = None
        self._was_there = False

    @property
    def session(self) -> ClientSession:
        """The session of the open connection.

        Raises:
            MCPError: There is no connection.
        """
        if self._client is None or self.failure is not None:
            raise MCPError(code=INTERNAL_ERROR, message=self.failure or "the MCP server is not connected yet")
        return self._client.session

    async def wanted(self, upward: Upward) -> ClientSession:
        """Return the session; if there is no connection or it was lost, connect first.

        Args:
            upward: Object that forwards the server's requests to the client.

        Raises:
            MCPError: The connection failed.
        """
        self._upward, settled = upward, self._settled
        self._wanted.set()
        await settled.wait()
        return self.session

    def drop_failed_connection(self, error: MCPError) -> None:
        """Close the connection to a remote server that did not list its tools, so that the next request reconnects.

        A possible cause is that the server has lost the session, which a new connection creates again.

        Args:
            error: The server's response to the request for its tools.
        """
        if isinstance(self._place, Address):
            self._failed(f"the server {self._place.told} does not list its tools: {error.message}")
            self._gone.set()

    async def run(self) -> None:
        """Connect whenever a connection is needed, until the task is cancelled or the server has ended for good."""
        while True:
            await self._wanted.wait()
            self._client, self.failure, self._gone = None, None, anyio.Event()
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._expire, tasks.cancel_scope)
                    await self._connected(tasks)
                    tasks.cancel_scope.cancel()
            except Exception as error:  # noqa: BLE001 - every failure of a connection is reported in one line
                self._failed(_why(self._place.told, error))
            self._settled.set()
            if isinstance(self._place, Command) or not self._was_there:
                break
            logger.warning("%s; the proxy connects again at the next call", self.failure)
            self._wanted, self._settled = anyio.Event(), anyio.Event()
        self.ended.set()

    async def _connected(self, tasks: TaskGroup) -> None:
        upward = self._upward
        assert upward is not None  # noqa: S101 - `wanted` sets it before `run` connects
        async with Client(
            self._place.connect(self._gone),
            client_info=Implementation(name="toolgate mcp-proxy", version=_version()),
            # The proxy uses the same kind of handshake as the client, so that every server that works without the proxy
            # also works with it.
            mode="auto" if upward.has_independent_requests else "legacy",
            cache=None,
            sampling_callback=upward.sampling,
            sampling_capabilities=upward.sampling_capabilities,
            elicitation_callback=upward.elicitation,
            list_roots_callback=upward.roots,
            logging_callback=upward.forward_log_message,
            message_handler=upward.forward_notification,
        ) as self._client:
            self._was_there = True
            self._settled.set()
            tasks.start_soon(_listen, self._client)
            await self._gone.wait()
            self._failed(f"the server {self._place.told} ended")

    async def _expire(self, scope: anyio.CancelScope) -> None:
        settled = self._settled
        with anyio.move_on_after(self._start_timeout):
            await settled.wait()
            return
        self._failed(f"the server {self._place.told} did not answer within {self._start_timeout:g} seconds")
        scope.cancel()

    def _failed(self, why: str) -> None:
        self.failure = self.failure or why


@asynccontextmanager
async def _watched(transport: AbstractAsyncContextManager[Any], ended: anyio.Event) -> AsyncIterator[Any]:
    async with transport as (read, write):
        relayed, given = anyio.create_memory_object_stream[Any](0)

        async def relay() -> None:
            async with relayed:
                try:
                    async for item in read:
                        await relayed.send(item)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return
            ended.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(relay)
            try:
                yield given, write
            finally:
                tasks.cancel_scope.cancel()
                given.close()


@asynccontextmanager
async def _reached(place: Address) -> AsyncIterator[Any]:
    async with (
        httpx2.AsyncClient(headers=dict(place.headers), timeout=_TIMEOUT) as http,
        streamable_http_client(place.url, http_client=http) as streams,
    ):
        yield streams


async def _listen(client: Client) -> None:
    """Subscribe to changes of the server if it supports that; the client's message handler forwards the notifications."""
    with suppress(ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError, ValidationError):
        async with client.listen(
            tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
        ) as news:
            async for _ in news:
                pass


def first_of(error: BaseException) -> BaseException:
    """Return the first error of a possibly nested exception group, or the error itself if it is not a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _why(server: str, error: BaseException) -> str:
    match error := first_of(error):
        case OSError(strerror=str(why)) if not isinstance(error, ssl.SSLError):
            return f"the server {server} cannot be started: {why}"
        case httpx2.HTTPError():
            return f"the server {server} cannot be reached: {str(error) or type(error).__name__}"
        case MCPError():
            return f"the server {server} did not complete the initialization of the MCP protocol: {error}"
        case ValidationError():
            return f"the server {server} sent a response that is not valid in the MCP protocol"
    return f"the server {server} cannot be used: {str(error) or type(error).__name__}"


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.username is None
    except ValueError:
        return False


def _version() -> str:
    from importlib.metadata import version

    return version("toolgate")
