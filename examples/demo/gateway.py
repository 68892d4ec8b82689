"""The demo's gateway, ``toolgate serve`` in a process of its own, and the owner of its organization."""

import json
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from .processes import start_process
from .shop import DemoError

EMAIL: Final = "owner@shop.example"
REFUND: Final = "stripe.refund"
MAX_REFUND: Final = 100

_AGENT: Final = "shop-assistant"
_SECONDS: Final = 30.0


class DemoGateway:
    """Serves a database file on a free port, in a `with` block.

    Args:
        database: the file.
        secret: the gateway's secret; None for the one of this installation.
    """

    def __init__(self, database: Path, *, secret: str | None) -> None:
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
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it, and wait for its end."""
        self._stop()

    def _start(self) -> str:
        command = [sys.executable, "-m", "toolgate", "serve", "--port", "0", "--plan", "enterprise"]
        self._process = start_process(command, self._env)
        found = re.search(r"http://\S+", self._process.stdout.readline()) if self._process.stdout else None
        if found is None:
            # The reason is on standard error.
            self._process.wait()
            raise DemoError("the gateway did not start")
        return found.group(0)

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None


class Owner:
    """Admin of the demo's organization, in a `with` block; registers when entered."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.password = secrets.token_urlsafe(16)
        self.api_key = ""
        # The environment may name a proxy, which cannot reach this machine.
        self._http = httpx.Client(base_url=url, timeout=_SECONDS, trust_env=False)

    def __enter__(self) -> Self:
        """Register the organization."""
        account = {"email": EMAIL, "password": self.password, "organization_name": "A small shop"}
        token = self._send("POST", "/auth/register", account)["access_token"]
        self._http.headers["Authorization"] = f"Bearer {token}"
        self.api_key = self._send("GET", "/api/organization")["api_key"]
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._http.close()

    def create_agent(self) -> str:
        """Create the agent with two permissions, and return its id; it has none to send mail."""
        agent_id: str = self._send("POST", "/api/agents", {"name": _AGENT})["id"]
        permissions = f"/api/agents/{agent_id}/permissions"
        self._send("POST", permissions, {"action": REFUND, "max_amount": MAX_REFUND, "amount_required": True})
        self._send("POST", permissions, {"action": "file.delete", "requires_approval": True})
        return agent_id

    def list_logs(self) -> list[dict[str, Any]]:
        """Return the log entries, oldest first."""
        entries: list[dict[str, Any]] = self._send("GET", "/api/logs?limit=100")
        return entries[::-1]

    def list_approvals(self) -> list[dict[str, Any]]:
        """Return the approval requests."""
        approvals: list[dict[str, Any]] = self._send("GET", "/api/approvals")
        return approvals

    def write_login(self, path: Path, agent_id: str) -> None:
        """Write the login, the API key and the agent's id to a file that only its owner can read."""
        note = {"email": EMAIL, "password": self.password, "api_key": self.api_key, "agent_id": agent_id}
        path.touch(mode=0o600)
        path.write_text(json.dumps(note, indent=2) + "\n")

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        try:
            response = self._http.request(method, path, json=body)
            response.raise_for_status()
        except httpx.HTTPError as error:
            raise DemoError(f"{method} {path} failed: {error}") from error
        return response.json()


def database_url(database: Path) -> str:
    """Return the URL of an SQLite file; its path may contain any characters."""
    return f"sqlite:///{quote(str(database))}"
