"""Measured servers: each is a process group on the core of the servers.

A server is ready after its first line of output, or when its port is open.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from load.machine import ROOT, SERVER, on_core

PLACES = os.pathsep.join(str(ROOT / folder) for folder in ("benchmarks", "tests"))
#: every sync to disk takes a millisecond longer
SLOW_DISK = (
    "strace",
    "-f",
    "--seccomp-bpf",
    "-o",
    os.devnull,
    "-e",
    "trace=fsync,fdatasync",
    "-e",
    "inject=fsync,fdatasync:delay_enter=1000",
)
#: seconds to start in
START = 60.0


class NotStarted(Exception):
    """A server did not start; the message carries what it said."""


class Server:
    """A server in a `with` block; it ends with the block.

    Args:
        command: Starts it.
        folder: Working directory, which also stores its output.
        env: Variables beside this process's own.
        port: Where it will listen; None is read from its first line.

    Attributes:
        port: Where it listens on the loopback address.
        pid: Its process.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        self._command = command
        self._folder = folder
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}
        self._env |= {"PYTHONPATH": PLACES, **(env or {})}
        self._told = port
        self.port = 0
        self.pid = 0

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        """Start it, and wait until it takes connections."""
        if shutil.which(self._command[0]) is None:
            raise NotStarted(f"{str(self._command[0])!r} is not installed")
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "said").open("wb") as said, on_core(SERVER):
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._told is None else said,
                stderr=said,
                text=True,
                start_new_session=True,
            )
        self.pid = self._process.pid
        try:
            self.port = self._told or self._port_by_its_line()
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End it and whatever it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _port_by_its_line(self) -> int:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        match = re.search(r"http://\S+:(\d+)", line)
        if match is None:
            raise self._failed()
        return int(match.group(1))

    def _wait(self) -> None:
        ends = time.monotonic() + START
        while time.monotonic() < ends and self._process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        raise self._failed()

    def _failed(self) -> NotStarted:
        said = (self._folder / "said").read_text(encoding="utf-8", errors="replace").strip()
        return NotStarted(f"{self._command[0]} did not start: {said[-2000:]!r}")


def gateway(
    folder: Path,
    database_url: str,
    *,
    one_by_one: bool = False,
    unrecorded: bool = False,
    slow_disk: bool = False,
    redis_url: str | None = None,
) -> Server:
    """The gateway as people start it: `toolgate serve`.

    Args:
        folder: Where it runs.
        database_url: Where its data is.
        one_by_one: Whether each log entry is a transaction of its own.
        unrecorded: Whether checks leave no record in the decision log.
        slow_disk: Whether each of its syncs takes a millisecond longer.
        redis_url: Where it counts rates together with others, if not in the database.
    """
    module = "load.one_by_one" if one_by_one else "load.unrecorded" if unrecorded else "toolgate"
    command = [sys.executable, "-m", module, "serve", "--port", "0", "--plan", "enterprise"]
    env = {"TOOLGATE_DATABASE_URL": database_url, "TOOLGATE_SECRET": "a secret for benchmarks, long enough"}
    if redis_url is not None:
        env["TOOLGATE_REDIS_URL"] = redis_url
    return Server([*(SLOW_DISK if slow_disk else ()), *command], folder, env=env)


def floor(folder: Path, postgresql: str | None) -> Server:
    """A server that does nothing, on the same uvicorn.

    Args:
        folder: Where it runs.
        postgresql: A database, if it selects one number there each time.
    """
    return Server([sys.executable, "-m", "load.floor", *([postgresql] if postgresql else [])], folder)


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
