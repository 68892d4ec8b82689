"""The proxy as a process: the client on standard input and output, the server behind it, and how both end."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Collection
from typing import Any, Final

import anyio
import anyio.to_thread
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus
from mcp.shared.exceptions import MCPDeprecationWarning

from toolgate import Guard
from toolgate_integrations._base import ToolActions
from toolgate_integrations._mcp_calls import Calls, OnHold
from toolgate_integrations._mcp_pins import pins_of
from toolgate_integrations.mcp_proxy.backend import Address, Backend, Command, first_of
from toolgate_integrations.mcp_proxy.calls import ToolCalls
from toolgate_integrations.mcp_proxy.front import Front
from toolgate_integrations.mcp_proxy.stdio import Answers, Lines, Questions
from toolgate_integrations.mcp_proxy.tools import Tools
from toolgate_integrations.mcp_proxy.upward import Allowed, Upward

__all__ = ["serve"]

# States are sealed with a key of this process, and bear no longer life than a request for approval.
_STATES_LAST: Final = 24 * 3600.0
_ANSWERED_WITHIN: Final = 5.0
_ENDS: Final = (signal.SIGTERM, signal.SIGHUP) if hasattr(signal, "SIGHUP") else (signal.SIGTERM,)


def serve(
    place: Command | Address,
    *,
    guard: Guard,
    name: str,
    tool_actions: ToolActions | None = None,
    on_hold: OnHold = "elicit",
    hold_timeout: float | None = 50.0,
    approval_page: str | None = None,
    granted: Callable[[], Collection[str] | None] | None = None,
    allowed: Collection[str] = (),
    start_timeout: float = 60.0,
) -> str | None:
    """Serve the tools of a server to the client on standard input and output, until one of the two ends.

    Args:
        place: The server.
        guard: Who asks.
        name: The server's, as its actions begin, and under which its tools are pinned.
        tool_actions: Actions of tools by their names.
        on_hold: What a held call does.
        hold_timeout: Seconds to wait for the person.
        approval_page: Where people decide.
        granted: The actions the agent has a permission for, or None while nobody can say: other tools are not
            shown. None shows all.
        allowed: What of the client the server may ask for: `sampling`, `elicitation`, `roots`.
        start_timeout: Seconds that the server may take to answer for the first time.

    Returns:
        Why the server was not there until the end, if it was not.

    Raises:
        ConfigurationError: An argument is wrong.
        KeyboardInterrupt: Somebody pressed Ctrl-C.
    """
    calls = Calls(
        guard,
        name=name,
        tool_actions=tool_actions,
        agents=None,
        on_hold=on_hold,
        hold_timeout=hold_timeout,
        approval_page=approval_page,
    )
    backend = Backend(place, start_timeout)
    bus = InMemorySubscriptionBus()
    upward = Upward(Allowed(**dict.fromkeys(allowed, True)), bus)
    tools = Tools(
        backend,
        pins_of(name),
        name,
        lambda tool: calls.action_of(calls.call(tool, {}, None, None, None)),
        None if granted is None else lambda: anyio.to_thread.run_sync(granted),
    )
    server: Server[Any] = Server(name)
    questions = Questions()
    front = Front(server, backend, upward, tools, ToolCalls(calls, tools, backend, upward), bus, questions)
    server.middleware.append(front)
    state = RequestStateSecurity.ephemeral(ttl=_STATES_LAST, audience=name)
    server.middleware.append(RequestStateBoundary(state, default_audience=name))
    _speak_in_lines()
    try:
        anyio.run(_run, front, backend, guard, questions)
    except Exception as error:  # noqa: BLE001 - whoever started the proxy is told in one line
        first = first_of(error)
        # A client that reads no more has ended, and cannot be told.
        if not isinstance(first, BrokenPipeError):
            return f"the proxy ended by an error of its own: {type(first).__name__}: {first}"
    return backend.failure if backend.ended.is_set() else None


async def _run(front: Front, backend: Backend, guard: Guard, questions: Questions) -> None:
    lines = Lines(sys.stdin.fileno())
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(backend.run)
            tasks.start_soon(_end_on_signal, lines)
            lines.start()
            # Whatever is printed by accident goes to standard error while this is open.
            async with stdio_server(stdin=lines) as (read, write):  # type: ignore[arg-type]  # of a file it is asked for nothing but its lines
                tasks.start_soon(_end_with_server, backend, questions, lines)
                await front.server.run(read, Answers(write, questions), front.options)
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await guard.aclose()


async def _end_with_server(backend: Backend, questions: Questions, lines: Lines) -> None:
    await backend.ended.wait()
    # What was asked is still answered: that the server is gone.
    with anyio.move_on_after(_ANSWERED_WITHIN):
        await questions.none()
    lines.end()


async def _end_on_signal(lines: Lines) -> None:
    if os.name == "nt":
        # There is no such signal there: a client ends the input.
        return
    with anyio.open_signal_receiver(*_ENDS) as signals:
        async for _ in signals:
            lines.end()


class _Line(logging.Formatter):
    """One line for each thing a library says: where it happened is nothing to whoever runs the proxy."""

    def format(self, record: logging.LogRecord) -> str:
        text = " ".join(record.getMessage().split())
        error = record.exc_info[1] if record.exc_info else None
        return f"toolgate: {text}" if error is None else f"toolgate: {text} ({type(error).__name__})"


def _speak_in_lines() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    # What the newer protocol takes away is what older servers and clients need.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
