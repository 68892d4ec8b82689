"""Process of the MCP proxy, which serves a client on standard input and output, or clients over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Collection
from types import TracebackType
from typing import Any, Final, Self

import anyio
import anyio.to_thread
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    ClientCapabilities,
    JSONRPCError,
    JSONRPCResponse,
    ListToolsResult,
    PaginatedRequestParams,
    RequestId,
    ServerCapabilities,
)
from pydantic import ValidationError

from toolgate import ConfigurationError, Guard
from toolgate_integrations.base import ToolActions
from toolgate_integrations.mcp.calls import Calls, OnHold
from toolgate_integrations.mcp_proxy.authzen.authorization import Authorization
from toolgate_integrations.mcp_proxy.authzen.expressions import require_library
from toolgate_integrations.mcp_proxy.backend import Address, Backend, Command, first_of
from toolgate_integrations.mcp_proxy.calls import ToolCalls, Tools
from toolgate_integrations.mcp_proxy.forwarding import Allowed, Upward, pass_on
from toolgate_integrations.mcp_proxy.listener import Listener, listener_of
from toolgate_integrations.mcp_proxy.pins import pins_of

__all__ = ["serve"]

_CHUNK: Final = 1 << 16


class Lines:
    """Asynchronous iterator over the client's lines, which ends when the input is closed or `end` is called.

    A daemon thread reads the lines. If a read still waits for the client when the proxy ends, it does not keep the
    process alive.

    Args:
        descriptor: File descriptor to read from.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._send, self._receive = anyio.create_memory_object_stream[str](64)
        self.ended = anyio.Event()

    def start(self) -> None:
        """Start the thread that reads the lines."""
        threading.Thread(target=self._read, args=(asyncio.get_running_loop(),), daemon=True).start()

    def end(self) -> None:
        """End the iteration over the lines, as if the client had closed the input."""
        self.ended.set()
        self._send.close()

    def __aiter__(self) -> AsyncIterator[str]:
        return self._lines()

    async def _lines(self) -> AsyncIterator[str]:
        async with self._receive:
            async for line in self._receive:
                yield line

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        rest = b""
        try:
            while chunk := os.read(self._descriptor, _CHUNK):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    # The thread waits for each line, so that lines are not read faster than the proxy processes them.
                    sent = self._send.send(line.decode("utf-8", "replace"))
                    asyncio.run_coroutine_threadsafe(sent, loop).result()
        except (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            # Reading ends if the input failed, or if the proxy has stopped processing the lines.
            pass
        with contextlib.suppress(RuntimeError):
            # A RuntimeError means that the proxy has already ended and the event loop is closed.
            loop.call_soon_threadsafe(self.end)


class Questions:
    """Set of the client's requests to which the proxy has not responded yet."""

    def __init__(self) -> None:
        self._open: set[RequestId] = set()
        self._none = anyio.Event()
        self._none.set()

    def add(self, request: RequestId) -> None:
        """Add a new request of the client."""
        self._open.add(request)
        if self._none.is_set():
            self._none = anyio.Event()

    def remove(self, request: RequestId) -> None:
        """Remove a request, because its response was sent or it needs none."""
        self._open.discard(request)
        if not self._open:
            self._none.set()

    async def wait_until_empty(self) -> None:
        """Wait until the proxy has responded to every request of the client."""
        while self._open:
            await self._none.wait()


class Answers:
    """Stream to the client, which removes a request from `questions` after the response to it was sent.

    Args:
        stream: The stream to write to.
        questions: Set of the client's requests to which the proxy has not responded yet.
    """

    def __init__(self, stream: Any, questions: Questions) -> None:
        self._stream, self._questions = stream, questions

    async def send(self, item: SessionMessage) -> None:
        """Write a message to the client."""
        await self._stream.send(item)
        message = item.message
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._questions.remove(message.id)

    async def aclose(self) -> None:
        """Close the stream to the client."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


Context = ServerRequestContext[Any, Any]
_CHANGES: Final = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)


class Front:
    """Middleware of the proxy that connects to the server behind it before the client's first request is handled.

    Args:
        server: The proxy's own server object; the capabilities of the server behind the proxy are added to it.
        backend: Connection to the server behind the proxy.
        upward: Forwarding of the server's requests to the client.
        tools: The tools of the server behind the proxy.
        calls: Handler of tool calls.
        bus: Bus through which the client is notified of changes.
        questions: Set of the client's requests to which the proxy has not responded yet; None in HTTP mode.

    Attributes:
        server: The argument `server`.
        options: Capabilities and instructions that the client receives in the handshake.
    """

    def __init__(
        self,
        server: Server[Any],
        backend: Backend,
        upward: Upward,
        tools: Tools,
        calls: ToolCalls,
        bus: InMemorySubscriptionBus,
        questions: Questions | None,
    ) -> None:
        self.server = server
        self._backend, self._upward, self._tools, self._calls, self._bus = backend, upward, tools, calls, bus
        self.options: InitializationOptions = server.create_initialization_options(_CHANGES)
        self._questions = questions
        self._shaped = False

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Connect to the server behind the proxy if there is no connection, and handle the client's request."""
        if ctx.request_id is None:
            return await call_next(ctx)
        if self._questions is None:
            return await self._served(ctx, call_next)
        if ctx.method != "subscriptions/listen":
            self._questions.add(ctx.request_id)
        try:
            return await self._served(ctx, call_next)
        except anyio.get_cancelled_exc_class():
            self._questions.remove(ctx.request_id)
            raise

    async def _served(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if not self._upward.serves_many:
            self._upward.session = ctx.session
            if ctx.method == "initialize":
                self._upward.declared = _declared(ctx)
        await self.connect()
        return await call_next(ctx)

    async def connect(self) -> None:
        """Connect to the server behind the proxy if there is no connection, and offer its capabilities to clients.

        Raises:
            MCPError: The connection failed.
        """
        await self._backend.wanted(self._upward)
        if not self._shaped:
            self._shaped = True
            self._take_shape()

    def _take_shape(self) -> None:
        session = self._backend.session
        offers = session.server_capabilities or ServerCapabilities()
        if offers.tools is not None:
            self.server.add_request_handler("tools/list", PaginatedRequestParams, self._list)
            self.server.add_request_handler("tools/call", CallToolRequestParams, self._calls)
        pass_on(self.server, self._backend, offers, self._bus)
        self.server.instructions = session.instructions
        told = self.server.create_initialization_options(_CHANGES)
        self.options.capabilities, self.options.instructions = told.capabilities, told.instructions

    async def _list(self, _: Context, params: PaginatedRequestParams) -> ListToolsResult:
        if params.cursor is not None:
            raise MCPError(
                code=INVALID_PARAMS,
                message="the list of tools has only one page; call tools/list without a cursor",
            )
        return ListToolsResult(tools=await self._tools.shown())


def _declared(ctx: Context) -> ClientCapabilities | None:
    """Return the capabilities that a client declares in its `initialize` request, or None if they are invalid."""
    try:
        return ClientCapabilities.model_validate((ctx.params or {}).get("capabilities") or {})
    except ValidationError:
        return None


# Seconds for which a request state is valid: 24 hours. States are protected by a key that exists only in this
# process.
_STATES_LAST: Final = 24 * 3600.0
_ANSWERED_WITHIN: Final = 5.0
_ENDS: Final = (signal.SIGTERM, signal.SIGHUP) if hasattr(signal, "SIGHUP") else (signal.SIGTERM,)


def serve(
    place: Command | Address,
    *,
    guard: Guard,
    name: str,
    tool_actions: ToolActions | None = None,
    on_hold: OnHold = "pause",
    hold_timeout: float | None = 50.0,
    approval_page: str | None = None,
    granted: Callable[[], Collection[str] | None] | None = None,
    allowed: Collection[str] = (),
    start_timeout: float = 60.0,
    listen: str | None = None,
    token_issuer: str | None = None,
    token_audience: str | None = None,
    jwks: str | None = None,
    authzen_mapping: bool = False,
) -> str | None:
    """Serve the tools of an MCP server to the client on standard input and output, until one of them ends.

    With `listen`, serve clients over HTTP until the server ends or the process receives a signal.

    Args:
        place: Command or address of the server.
        guard: The guard that sends the checks.
        name: Server name: the first part of each action, and the name under which the trusted definitions of the
            server's tools are stored.
        tool_actions: Actions by tool name.
        on_hold: Reaction to a call that requires an approval.
        hold_timeout: Seconds to wait for the approver.
        approval_page: URL of the page where approvers decide.
        granted: Function that returns the actions for which the agent has a permission; only the tools with these
            actions are listed. If the function is None or returns None, all tools are listed.
        allowed: Kinds of requests that the server may send to the client: `sampling`, `elicitation`, `roots`.
        start_timeout: Seconds to wait for the first response of the server.
        listen: Host and port to serve clients over HTTP.
        token_issuer: Issuer of the access tokens that clients send over HTTP.
        token_audience: Audience of the access tokens.
        jwks: Address or file of the issuer's public keys.
        authzen_mapping: True to check each request of the client by its AuthZEN mapping.

    Returns:
        The reason why the server or the proxy failed, or None.

    Raises:
        ConfigurationError: An argument is invalid.
        KeyboardInterrupt: The user pressed Ctrl-C.
    """
    calls = Calls(guard, name, tool_actions, None, on_hold, hold_timeout, approval_page)
    listener = None if listen is None else listener_of(listen, token_issuer, token_audience, jwks)
    audience = None if listener is None or listener.tokens is None else listener.tokens.audience
    if listener is None and (token_issuer or token_audience or jwks):
        raise ConfigurationError("--token-issuer, --token-audience and --jwks work only with --listen")
    if listener is not None and allowed:
        raise ConfigurationError(
            "--allow-sampling, --allow-elicitation and --allow-roots do not work with --listen: the server's requests "
            "could reach the wrong client"
        )
    if authzen_mapping:
        if audience is None:
            raise ConfigurationError(
                "--authzen-mapping needs the access token of each client; add --listen, --token-issuer, "
                "--token-audience and --jwks"
            )
        require_library()
    backend = Backend(place, start_timeout)
    bus = InMemorySubscriptionBus()
    upward = Upward(Allowed(**dict.fromkeys(allowed, True)), bus, serves_many=listener is not None)
    authorization = Authorization(calls, name, audience) if authzen_mapping and audience else None
    tools = Tools(
        backend,
        pins_of(name, reviews_mappings=authzen_mapping),
        name,
        lambda tool: calls.action_of(calls.call(tool, {}, None, None, None)),
        None if granted is None else lambda: anyio.to_thread.run_sync(granted),
    )
    server: Server[Any] = Server(name)
    questions = Questions()
    front = Front(
        server,
        backend,
        upward,
        tools,
        ToolCalls(calls, tools, backend, upward, authorization),
        bus,
        questions if listener is None else None,
    )
    if authorization is not None:
        server.middleware.append(authorization)
    server.middleware.append(front)
    state = RequestStateSecurity.ephemeral(ttl=_STATES_LAST, audience=name)
    server.middleware.append(RequestStateBoundary(state, default_audience=name))
    _speak_in_lines()
    try:
        if listener is None:
            anyio.run(_run, front, backend, guard, questions)
        else:
            anyio.run(_listen, front, backend, guard, listener)
    except Exception as error:  # noqa: BLE001 - the command prints every error in one line
        first = first_of(error)
        # A broken pipe is not an error: it means that the client has ended.
        if not isinstance(first, BrokenPipeError):
            return f"the proxy ended because of an internal error: {type(first).__name__}: {first}"
    return backend.failure if backend.ended.is_set() else None


async def _run(front: Front, backend: Backend, guard: Guard, questions: Questions) -> None:
    lines = Lines(sys.stdin.fileno())
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(backend.run)
            tasks.start_soon(_end_on_signal, lines)
            lines.start()
            # While this context manager is active, accidental prints go to standard error and do not break the
            # protocol.
            async with stdio_server(stdin=lines) as (read, write):  # type: ignore[arg-type]  # `stdio_server` only iterates over the lines
                tasks.start_soon(_end_with_server, backend, questions, lines)
                await front.server.run(read, Answers(write, questions), front.options)
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await guard.aclose()


async def _listen(front: Front, backend: Backend, guard: Guard, listener: Listener) -> None:
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(backend.run)
            # If the connection fails, `backend.failure` contains the reason.
            with contextlib.suppress(MCPError):
                await front.connect()
                await listener.run(front.server, backend)
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await guard.aclose()


async def _end_with_server(backend: Backend, questions: Questions, lines: Lines) -> None:
    await backend.ended.wait()
    # The server has ended. Wait briefly, so that the client still receives error responses to its open requests.
    with anyio.move_on_after(_ANSWERED_WITHIN):
        await questions.wait_until_empty()
    lines.end()


async def _end_on_signal(lines: Lines) -> None:
    if os.name == "nt":
        # Windows has no such signals; clients close the input to end the proxy.
        return
    with anyio.open_signal_receiver(*_ENDS) as signals:
        async for _ in signals:
            lines.end()


class _Line(logging.Formatter):
    """Log format of the proxy: one line per record, without the location in the code."""

    def format(self, record: logging.LogRecord) -> str:
        text = " ".join(record.getMessage().split())
        error = record.exc_info[1] if record.exc_info else None
        return f"toolgate: {text}" if error is None else f"toolgate: {text} ({type(error).__name__})"


def _speak_in_lines() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    # Deprecation warnings are hidden, because older servers and clients need features that the newer protocol
    # deprecates.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
