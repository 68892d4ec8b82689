"""The demo's gateway: `toolgate serve` in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from toolgate_cli.gateway import load_gateway
from toolgate_cli.output import fail


class DemoGateway:
    """Serves a database of the demo's on a free port."""

    def __init__(self, database: Path, *, secret: str | None) -> None:
        # A missing extra is told before anything is made.
        load_gateway("serve")
        env = {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}
        env["TOOLGATE_DATABASE_URL"] = database_url(database)
        env["PYTHONUTF8"] = "1"
        if secret is not None:
            env["TOOLGATE_SECRET"] = secret
        self._env = env
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        """Start it; return once it listens."""
        try:
            self.url = self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self) -> str:
        command = [sys.executable, "-m", "toolgate", "serve", "--port", "0", "--plan", "enterprise"]
        # A session of its own: the terminal's Ctrl-C is for the demo, which then ends the gateway properly.
        self._process = subprocess.Popen(  # noqa: S603 - our own command, fixed words
            command, env=self._env, stdout=subprocess.PIPE, encoding="utf-8", start_new_session=True
        )
        if self._process.stdout is None:
            raise RuntimeError("the gateway's output is not captured")
        found = re.search(r"http://\S+", self._process.stdout.readline())
        if found is None:
            # Why is on standard error already, in one line.
            self._process.wait()
            fail("the gateway did not start")
        return found.group(0)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self.stop()

    def stop(self) -> None:
        """End the process and wait for its end."""
        if self._process is None:
            return
        self._process.terminate()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None


def database_url(database: Path) -> str:
    """Return the URL of an SQLite file, whatever characters its path has."""
    return f"sqlite:///{quote(str(database))}"
