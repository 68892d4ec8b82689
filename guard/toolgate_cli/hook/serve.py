"""``toolgate hook serve``: one process that answers a coding agent's hooks over HTTP, so that none starts per tool call."""

import asyncio
import os
import signal
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any

import typer

from toolgate._files import PrivateFileError
from toolgate.errors import ConfigurationError
from toolgate_cli.account import PasswordStdin
from toolgate_cli.hook.agents import agent_ids
from toolgate_cli.hook.http_server import HookServer, Reply
from toolgate_cli.hook.options import (
    Agent,
    HoldTimeout,
    OnHold,
    Subagent,
    ToolAction,
    Url,
    named_agents,
    named_gateway,
    words_of,
)
from toolgate_cli.hook.over_http import PATH, PORT, address
from toolgate_cli.hook.reading import AllowReading, permit_reading, with_reading_actions
from toolgate_cli.hook.running import told_of
from toolgate_cli.hook.secret import find_secret
from toolgate_cli.output import fail
from toolgate_cli.plugins import load_plugin


def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = PORT,
    url: Url = None,
    agent: Agent = None,
    subagent: Subagent = None,
    tool_action: ToolAction = None,
    on_hold: OnHold = "wait",
    hold_timeout: HoldTimeout = 300.0,
    allow_reading: AllowReading = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Answer the hooks that `toolgate hook install --http` wrote, on this machine, until interrupted.

    The gateway's key, TOOLGATE_API_KEY, is needed here and no longer where claude is started.
    """
    hooks = load_plugin("hooks", "cli")
    if allow_reading:
        tool_action = with_reading_actions("claude-code", tool_action)
    agent, subagent = agent_ids(url, agent, subagent)
    try:
        words = words_of(url, agent, subagent, tool_action, on_hold, hold_timeout)
        # Nobody is told over HTTP which process asks: what runs is struck out by its session's end, or left by this one's.
        hook, secret = hooks.parse(["claude-code", *words], os.getpid()), find_secret()
        if allow_reading:
            permit_reading(named_gateway(url), named_agents(agent, subagent), password_stdin=password_stdin)
    except (ConfigurationError, PrivateFileError) as error:
        fail(str(error))
    try:
        asyncio.run(_serve(hook, secret, port))
    except OSError as error:
        fail(
            f"cannot listen on 127.0.0.1, port {port}: {error.strerror}; if nothing of yours listens there, whoever "
            "does answers in the guard's place: name another --port, here and for toolgate hook install --http"
        )
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


async def _serve(hook: Any, secret: str, port: int) -> None:
    ended = asyncio.Event()
    with suppress(NotImplementedError):  # on Windows, which ends processes without a word
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)

    async def answer(given: bytes) -> Reply:
        return await answered(hook, given)

    server = HookServer(answer, path=PATH, secret=secret, port=port)
    await server.open()
    # Nothing is awaited here: the first hook that records would sweep as well, and each call is recorded once.
    hook.asking.sweep()
    typer.echo(f"toolgate: answering Claude Code at {address(server.port)}; Ctrl-C ends it", err=True)
    try:
        await ended.wait()
    finally:
        await server.close()
        await hook.asking.guard.aclose()


async def answered(hook: Any, given: bytes) -> Reply:
    """Return the hook's answer; whatever goes wrong is a status by which Claude Code runs no tool."""
    try:
        async with asyncio.timeout(hook.limit):
            answer = await hook.aanswer(given)
        body = answer.stdout or b"{}"
    except ConfigurationError as error:
        typer.echo(f"toolgate: {error}", err=True)
        return Reply(HTTPStatus.UNPROCESSABLE_ENTITY)
    except TimeoutError:
        return Reply(HTTPStatus.GATEWAY_TIMEOUT)
    except Exception as error:  # noqa: BLE001 - nothing that happens here may end the server, or let a tool run
        typer.echo(f"toolgate: the guard failed with {told_of(error)}", err=True)
        return Reply(HTTPStatus.INTERNAL_SERVER_ERROR)
    # To Claude Code an answer of nothing is a yes.
    is_mute = answer.code and not answer.stdout
    return Reply(HTTPStatus.INTERNAL_SERVER_ERROR) if is_mute else Reply(HTTPStatus.OK, body)
