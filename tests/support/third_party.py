"""MCP servers that other people wrote, at fixed versions, installed once into a folder that is kept between runs."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from uv import find_uv_bin

from support.readme import ROOT

LOCKS = Path(__file__).with_name("servers")
KEPT = ROOT / ".tools" / "mcp-servers"


def everything() -> list[str]:
    """The words that start `@modelcontextprotocol/server-everything`, from npm."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm here, and a server from npm needs it")

    def install(folder: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(LOCKS / name, folder)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        run([*command, "--cache", str(KEPT / "npm-cache")], folder)

    folder = install_once(KEPT / "npm", (LOCKS / "package-lock.json").read_text(), install)
    return ["node", str(folder / "node_modules/@modelcontextprotocol/server-everything/dist/index.js")]


def clock() -> list[str]:
    """The words that start `mcp-server-time`, from PyPI, on the last `mcp` 1.x."""
    uv, locked = find_uv_bin(), LOCKS / "pypi.txt"

    def install(folder: Path) -> None:
        run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder / "env")], folder)
        python = str(folder / "env" / "bin" / "python")
        run([uv, "pip", "sync", "--quiet", "--python", python, str(locked)], folder)

    folder = install_once(KEPT / "pypi", locked.read_text(), install)
    return [str(folder / "env" / "bin" / "mcp-server-time"), "--local-timezone", "UTC"]


def install_once(prefix: Path, contents: str, install: Callable[[Path], None]) -> Path:
    """Return the folder with this prefix for these contents, after filling it if no earlier run has.

    Args:
        contents: Text that changes whenever the folder must be filled again, such as a lock file.
    """
    digest = hashlib.sha256(f"{contents}{sys.executable}".encode()).hexdigest()[:16]
    folder = prefix.with_name(f"{prefix.name}-{digest}")
    folder.mkdir(parents=True, exist_ok=True)
    with prefix.with_name(f"{prefix.name}.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        done = folder / "done"
        if not done.exists():
            install(folder)
            done.touch()
    return folder


def run(command: list[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
    """Run a command that installs or builds something; fail with its errors."""
    ended = subprocess.run(
        command,
        cwd=folder,
        env=env or environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, f"{command} ended with {ended.returncode}: {ended.stderr}"


def environment() -> Mapping[str, str]:
    """Return what those who fetch from the registries need to know of this machine: whose certificates are believed."""
    env = {"UV_SYSTEM_CERTS": "1", **os.environ}
    if "SSL_CERT_FILE" in env:
        env.setdefault("NODE_EXTRA_CA_CERTS", env["SSL_CERT_FILE"])
    env.pop("VIRTUAL_ENV", None)
    return env
