"""The program behind `support.forking`: it has the gateway's modules in memory, and forks a gateway for each request.

Its standard input is a Unix socket. A request comes with the new process's standard streams and a pipe for news: the
process id first and, when it has ended, its exit code. When nobody is there to ask any more, its children are killed.
"""

import asyncio
import atexit
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import threading
from contextlib import suppress
from functools import cache, partial
from tempfile import TemporaryDirectory
from typing import Any

import typer.main
from pwdlib.hashers.argon2 import Argon2Hasher

MODULES = (
    "toolgate_cli.app",
    "toolgate_service.server.run",
    "asyncpg",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvloop",
)
LARGEST = 1 << 20


def main() -> None:
    """Fork until nobody is there to ask; a child leaves here as the command `toolgate`."""
    for name in (*MODULES, *sys.argv[1:]):
        importlib.import_module(name)
    asyncio.run(_live_once())
    _build_commands_once()
    gc.collect()
    gc.freeze()
    asked = _serve(socket.socket(fileno=0))
    if asked is not None:
        _become(asked)


async def _live_once() -> None:
    """Let a gateway begin and end here: what the first one in a process makes ready is ready in every child."""
    from toolgate_service.app import build
    from toolgate_service.core.settings import Settings
    from toolgate_service.gateway import Gateway

    for name in [name for name in os.environ if name.startswith("TOOLGATE_")]:
        del os.environ[name]
    with TemporaryDirectory() as folder:
        gateway = Gateway(
            Settings(database_url=f"sqlite:///{folder}/gateway.db", secret="of a gateway that nobody asks")
        )
        build(gateway)
        await gateway.start()
        await gateway.stop()
    assert threading.active_count() == 1, f"a fork would lose threads: {threading.enumerate()}"


def _build_commands_once() -> None:
    """Build the commands here, and find the gateway's entry points: each takes a child longer than an average request."""
    from toolgate_cli.app import app
    from toolgate_cli.entry_points import import_gateway

    build = cache(typer.main.get_command)
    vars(typer.main)["get_command"] = build
    build(app)
    for name in ("serve", "StartError", "admin", "config", "db"):
        import_gateway(name)


def _serve(asking: socket.socket) -> dict[str, Any] | None:
    """Return what is asked of a child, in that child; None in this process, at its end."""
    heard, told = os.pipe()
    for end in (heard, told):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    news: dict[int, int] = {}
    with selectors.DefaultSelector() as waiting:
        waiting.register(asking, selectors.EVENT_READ)
        waiting.register(heard, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in waiting.select()}
            if heard in ready:
                os.read(heard, 4096)
                _tell_of_the_ended(news)
            if asking.fileno() not in ready:
                continue
            message, (*handed,), _, _ = socket.recv_fds(asking, LARGEST, 4)
            if not message:
                break
            child = os.fork()
            if child == 0:
                asking.detach()
                for end in (heard, told, handed.pop(), *news.values()):
                    os.close(end)
                _take(*handed)
                asked: dict[str, Any] = json.loads(message)
                return asked
            news[child] = handed.pop()
            for end in handed:
                os.close(end)
            os.write(news[child], b"%d\n" % child)
    for child in news:
        os.kill(child, signal.SIGKILL)
    return None


def _tell_of_the_ended(news: dict[int, int]) -> None:
    for child in list(news):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            told = news.pop(child)
            # Whoever asked may be gone, and the pipe with them.
            with suppress(BrokenPipeError):
                os.write(told, b"%d\n" % os.waitstatus_to_exitcode(status))
            os.close(told)


def _take(*streams: int) -> None:
    """Make this child what a new process is: default signals, the standard streams it was handed."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115 - for good


def _become(asked: dict[str, Any]) -> None:
    # In a session without a terminal, commands do not ask for a password.
    os.setsid()
    if os.isatty(0):
        # The first terminal that the leader of a session opens becomes its controlling terminal.
        os.close(os.open(os.ttyname(0), os.O_RDWR))
    os.chdir(asked["folder"])
    if asked["umask"] >= 0:
        os.umask(asked["umask"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv = ["toolgate", *asked["arguments"]]
    if asked["cheap_passwords"]:
        from toolgate_service.core import crypto

        # The gateway has no such setting, and shall have none.
        cheap = partial(Argon2Hasher, time_cost=1, memory_cost=8, parallelism=1)
        vars(crypto)["Argon2Hasher"] = cheap
    if overheard_in := os.environ.get("OVERHEARD_IN"):
        importlib.import_module("overhearing").begin(overheard_in)
    from toolgate_cli import main as toolgate

    try:
        toolgate()
        code = 0
    except SystemExit as end:
        code = _exit_code(end)
    _leave(code)


def _exit_code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    sys.stderr.write(f"{end.code}\n")
    return 1


def _leave(code: int) -> None:
    """End this process as Python does, but without clearing its modules, which takes as long as a gateway's start."""
    threading._shutdown()  # type: ignore[attr-defined]  # what the interpreter calls at its end
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # Its reader may have gone.
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
