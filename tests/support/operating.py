"""`toolgate db` as an operator runs it."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from support.databases import without_warnings
from support.forking import FORK_SERVER
from support.gateway import LiveGateway


class Operator:
    """Somebody with the settings of a gateway at hand."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = dict(env)

    @classmethod
    def of(cls, gateway: LiveGateway, **env: str) -> "Operator":
        """Return the operator of a gateway."""
        return cls({**gateway.env, **env})

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command; the warning that every start on the tests' PostgreSQL gives is left out."""
        ended = FORK_SERVER.run("db", *arguments, env=self.env)
        ended.stderr = without_warnings(ended.stderr)
        return ended

    def done(self, *arguments: str) -> list[str]:
        """Run a command that must succeed, and return its lines."""
        ended = self.run(*arguments)
        assert (ended.returncode, ended.stderr) == (0, ""), ended
        return ended.stdout.splitlines()

    def told(self, *arguments: str, status: int = 0) -> dict[str, Any]:
        """Run a command with `--json` and return what it says."""
        ended = self.run(*arguments, "--json")
        assert (ended.returncode, ended.stderr) == (status, ""), ended
        assert ended.stdout.isascii()
        said: dict[str, Any] = json.loads(ended.stdout)
        return said

    def refused(self, *arguments: str) -> str:
        """Run a command that must refuse in one line, and return the line."""
        ended = self.run(*arguments)
        assert (ended.returncode, ended.stdout) == (1, ""), ended
        (line,) = ended.stderr.splitlines()
        assert line.startswith("toolgate: "), line
        return line.removeprefix("toolgate: ")


def url_of(path: Path) -> str:
    """Return the database URL of a file."""
    return f"sqlite:///{quote(str(path))}"
