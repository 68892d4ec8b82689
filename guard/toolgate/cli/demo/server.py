"""The demo's gateway: `toolgate serve` in a process of its own."""

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from toolgate.cli.gateway import load_gateway
from toolgate.cli.output import fail


class DemoGateway:
    """Serves a database of the demo's on a free port."""

    def __init__(self, database: Path, *, keep: bool) -> None:
        # A missing extra is told before anything is made.
        load_gateway("serve")
        env = {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}
        env["TOOLGATE_DATABASE_URL"] = f"sqlite:///{database}"
        if not keep:
            # A file that is thrown away needs no lasting secret; a kept one is opened again with the user's own.
            env["TOOLGATE_SECRET"] = secrets.token_urlsafe(32)
        elif secret := os.environ.get("TOOLGATE_SECRET"):
            env["TOOLGATE_SECRET"] = secret
        self._env = env
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        """Start it; return once it listens."""
        command = [sys.executable, "-m", "toolgate", "serve", "--port", "0", "--plan", "enterprise"]
        self._process = subprocess.Popen(command, env=self._env, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own command, fixed words
        if self._process.stdout is None:
            raise RuntimeError("the gateway's output is not captured")
        line = self._process.stdout.readline()
        found = re.search(r"http://\S+", line)
        if found is None:
            # Why is on standard error already, in one line.
            self._process.wait()
            fail("the gateway did not start")
        self.url = found.group(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        if self._process is None:
            return
        self._process.terminate()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
