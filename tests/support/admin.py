"""`toolgate admin` as an operator runs it, on a live gateway's database."""

import subprocess
from collections.abc import Mapping

from support.databases import without_warnings
from support.forking import FORK_SERVER
from support.gateway import LiveGateway


def run_admin(
    gateway: LiveGateway, *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command with the gateway's own settings."""
    return FORK_SERVER.run("admin", *arguments, env={**gateway.env, **(env or {})})


def done(gateway: LiveGateway, *arguments: str, env: Mapping[str, str] | None = None) -> list[str]:
    """Run a command that must succeed, and return what it showed."""
    ended = run_admin(gateway, *arguments, env=env)
    assert (ended.returncode, _said(ended)) == (0, []), ended
    return ended.stdout.splitlines()


def refusal(gateway: LiveGateway, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    """Run a command that must refuse in one line, and return the line."""
    ended = run_admin(gateway, *arguments, env=env)
    assert (ended.returncode, ended.stdout) == (1, ""), ended
    (line,) = _said(ended)
    assert line.startswith("toolgate: ")
    return line


def _said(ended: subprocess.CompletedProcess[str]) -> list[str]:
    return without_warnings(ended.stderr).splitlines()
