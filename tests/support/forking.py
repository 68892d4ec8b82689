"""`toolgate` in processes forked from one that has imported everything: each starts in a tenth of the time.

What runs is the command in a process of its own, which can be killed for real; only the seconds that Python spends
importing are spent once. Whatever is about those seconds starts the command itself.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

PROGRAM = Path(__file__).with_name("fork_server.py")


class Forked:
    """A forked process, with what tests use of `subprocess.Popen`.

    Args:
        output: the pipe that it prints to.
        news: the pipe that tells its process id, then its exit code.

    Attributes:
        pid: its process id.
        stdout: what it prints.
        returncode: its exit code, once it was waited for; negative: the signal that ended it.
    """

    def __init__(self, output: int, news: int) -> None:
        self.stdout = os.fdopen(output, encoding="utf-8")
        self._news = os.fdopen(news, encoding="utf-8")
        self.pid = int(self._news.readline())
        self.returncode: int | None = None
        self._reading = threading.Lock()

    def poll(self) -> int | None:
        """Return its exit code, if it has ended."""
        return self._within(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not, in so many seconds.
        """
        code = self._within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"the forked gateway {self.pid}", timeout or 0)
        return code

    def send_signal(self, what: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            # It may have ended just now, and the server be about to say so.
            with suppress(ProcessLookupError):
                os.kill(self.pid, what)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def _within(self, seconds: float | None) -> int | None:
        with self._reading:
            if self.returncode is None and select.select([self._news], [], [], seconds)[0]:
                told = self._news.readline()
                assert told, "the process that forks gateways has died"
                self.returncode = int(told)
                self._news.close()
            return self.returncode


class ForkServer:
    """The process that forks: started when it is first needed, gone with the process that started it.

    Args:
        modules: what it has in memory beside the gateway.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._asking: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._one_by_one = threading.Lock()

    def start(
        self,
        *arguments: str,
        env: Mapping[str, str],
        stderr: int = 2,
        umask: int = -1,
        cheap_passwords: bool = True,
    ) -> Forked:
        """Return a new process that does `toolgate …`.

        Args:
            arguments: what it is to do.
            env: all of its environment.
            stderr: where its standard error goes; without one where this process's goes.
            umask: its umask, if not this process's.
            cheap_passwords: whether hashes cost it next to nothing: most tests register somebody.
        """
        output, printed = os.pipe()
        with Path(os.devnull).open("rb") as nothing:
            news = self._fork(arguments, env, (nothing.fileno(), printed, stderr), umask, cheap_passwords)
        os.close(printed)
        return Forked(output, news)

    def run(
        self, *arguments: str, env: Mapping[str, str], typed: str = "", timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Do `toolgate …` to its end, and return what it said.

        Raises:
            subprocess.TimeoutExpired: it does not end in so many seconds; it is killed.
        """
        with TemporaryFile("w+") as read, TemporaryFile("w+") as printed, TemporaryFile("w+") as said:
            read.write(typed)
            read.seek(0)
            streams = (read.fileno(), printed.fileno(), said.fileno())
            nothing = os.open(os.devnull, os.O_RDONLY)
            process = Forked(nothing, self._fork(arguments, env, streams))
            process.stdout.close()
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            printed.seek(0)
            said.seek(0)
            return subprocess.CompletedProcess(["toolgate", *arguments], code, printed.read(), said.read())

    def speak(self, *arguments: str, env: Mapping[str, str], streams: tuple[int, int, int]) -> Forked:
        """Return a new process that does `toolgate …` with these standard streams; what it prints is not kept."""
        nothing = os.open(os.devnull, os.O_RDONLY)
        process = Forked(nothing, self._fork(arguments, env, streams))
        process.stdout.close()
        return process

    def _fork(
        self,
        arguments: tuple[str, ...],
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        umask: int = -1,
        cheap_passwords: bool = True,
    ) -> int:
        request = {
            "arguments": arguments,
            "env": dict(env),
            "folder": str(Path.cwd()),
            "umask": umask,
            "cheap_passwords": cheap_passwords,
        }
        news, told = os.pipe()
        with self._one_by_one:
            if self._asking is None:
                self._asking = self._begin()
            socket.send_fds(self._asking, [json.dumps(request).encode()], [*streams, told])
        os.close(told)
        return news

    def _begin(self) -> socket.socket:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            # Nobody waits for it: it ends when our end of the socket is closed, by whatever ends this process.
            self._process = subprocess.Popen([sys.executable, str(PROGRAM), *self._modules], stdin=its)
        return ours


FORK_SERVER = ForkServer()
