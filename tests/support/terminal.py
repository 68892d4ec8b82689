"""Commands at a pseudo-terminal."""

import errno
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from support.forking import FORK_SERVER, Forked
from support.waiting import until


class Terminal:
    """Command at a pseudo-terminal, in a `with` block; the command is killed if it has not ended by then.

    Attributes:
        shown: Output since the last `wait_for`.
        process: The command: a fork of the fork server, or a new process if `program` is given.
    """

    process: Forked | subprocess.Popen[bytes]

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str],
        columns: int = 100,
        program: Sequence[str] | None = None,
    ) -> None:
        ours, theirs = pty.openpty()
        self._ours = ours
        self.shown = ""
        env = {**env, "COLUMNS": str(columns), "TERM": "xterm-256color"}
        if program is None:
            self.process = FORK_SERVER.speak(*arguments, env=env, streams=(theirs, theirs, theirs))
        else:
            self.process = _start([*program, *arguments], env, theirs)
        os.close(theirs)

    def wait_for(self, text: str, *, seconds: float = 60) -> str:
        """Return what was shown up to and with a text, and go on behind it; fail when it does not come."""
        ends = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < ends, f"{text!r} did not come: {self.shown!r}"
            assert self._read(0.1), f"the command ended without {text!r}: {self.shown!r}"
        before, _, self.shown = self.shown.partition(text)
        return before + text

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self._ours, f"{text}\n".encode())

    def interrupt(self) -> None:
        """Press Ctrl-C, once the command waits for something.

        Python does not notice a signal that comes just before it begins to read from a terminal.
        """
        until(self._waits)
        os.write(self._ours, b"\x03")

    def end(self, *, seconds: float = 60) -> int:
        """Return the exit code once the command ended by itself, having read what it still showed."""
        ends = time.monotonic() + seconds
        while self._read(0.1):
            assert time.monotonic() < ends, f"the command did not end: {self.shown!r}"
        return self.process.wait(timeout=max(1.0, ends - time.monotonic()))

    def _waits(self) -> bool:
        def state() -> str:
            return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]

        # For more than a moment: it also sleeps while it loads modules.
        return all(not self._read(0.02) or state() == "S" for _ in range(5))

    def _read(self, seconds: float) -> bool:
        if not select.select([self._ours], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self._ours, 65536)
        except OSError as error:
            # How Linux says that nobody holds the other side any more.
            if error.errno != errno.EIO:
                raise
            piece = b""
        self.shown += piece.decode(errors="replace").replace("\r\n", "\n")
        return bool(piece)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=30)
        os.close(self._ours)


def _start(command: Sequence[str], env: Mapping[str, str], terminal: int) -> subprocess.Popen[bytes]:
    # The first terminal that the leader of a new session opens becomes its controlling terminal.
    script = (
        "import os, sys; os.close(os.open(os.ttyname(0), os.O_RDWR)); os.execvp(sys.argv[1], sys.argv[1:])"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script, *command],
        env=env,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
