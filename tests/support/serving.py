"""The command `toolgate serve` as a user runs it, in a home of its own."""

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Self

import httpx

from support.databases import without_warnings
from support.forking import FORK_SERVER
from support.leaks import assert_none, printed

ADDRESS = "Toolgate gateway on "


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment that knows nothing of this machine's user but a home."""
    ours = ("TOOLGATE_", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"HOME": str(home)} | dict(extra or {})


def run_serve(
    home: Path, *arguments: str, extra: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a `toolgate serve` that is expected to refuse; one that serves nevertheless is an error."""
    return FORK_SERVER.run("serve", "--port", "0", *arguments, env=environment(home, extra), timeout=120)


def read_summary(stdout: IO[str]) -> str:
    """Read what a gateway prints once it serves, up to its last line; less where it ends before that."""
    lines = []
    for line in iter(stdout.readline, ""):
        lines.append(line)
        if line.startswith("Press Ctrl-C"):
            break
    return "".join(lines)


class Serving:
    """A `toolgate serve` that runs, in a `with` block; at its end it is killed if it has not ended."""

    def __init__(self, home: Path, *arguments: str, extra: Mapping[str, str] | None = None, umask: int = -1):
        self._said = home.with_name(f"{home.name}-{id(self)}.stderr")
        with self._said.open("wb") as stderr:
            self.process = FORK_SERVER.start(
                *("serve", "--port", "0", *arguments),
                env=environment(home, extra),
                stderr=stderr.fileno(),
                umask=umask,
            )
        self.line = ""
        #: everything printed at the start
        self.summary = ""

    def listening(self) -> Self:
        """Return once it listens, its start-up summary read."""
        self.summary = read_summary(self.process.stdout)
        self.line = self.summary.partition("\n")[0]
        assert self.line.startswith(ADDRESS), self.complaint
        return self

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.line.removeprefix(ADDRESS).split()[0]

    @property
    def complaint(self) -> str:
        """What it wrote to standard error, without its rightful warnings about the tests' PostgreSQL."""
        return without_warnings(self._said.read_text())

    def ended_by(self, how: signal.Signals, seconds: float) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(how)
        return self.process.wait(timeout=seconds)

    def register(self) -> str:
        """Register an organization and return its admin's token."""
        body = {"email": "a@example.test", "password": "correct horse battery", "organization_name": "Acme"}
        answer = httpx.post(f"{self.url}/auth/register", json=body, timeout=30)
        assert answer.status_code == 200, answer.text
        token: str = answer.json()["access_token"]
        return token

    def knows(self, token: str) -> bool:
        """Whether a token is accepted."""
        answer = httpx.get(f"{self.url}/auth/me", headers={"Authorization": f"Bearer {token}"}, timeout=30)
        return answer.status_code == 200

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=30)
        assert_none(printed(self.process.stdout))
        assert_none(self._said.read_text())
