"""A live gateway in a process of its own, and an owner who talks to it over HTTP."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, Self

import httpx

from support.balancer import Balancer
from support.databases import CHOICE, database_file, database_url
from support.forking import FORK_SERVER, Forked
from support.leaks import KNOWN, assert_none, printed
from support.serving import read_summary

SECRET = "a secret for tests, long enough"
PASSWORD = "correct horse battery"
KNOWN.learn(SECRET, PASSWORD)


class LiveGateway:
    """`toolgate serve`; the port is the operating system's choice, or fixed to restart on it.

    With `--replicas` it is several of them on one database, each request sent to a random one. Its data is what the folder stands for: an SQLite file in it or, by `--database`, a PostgreSQL database. Whoever
    names the folder again finds the same data.

    Args:
        folder: stands for its data.
        plan: what new organizations get.
        env: settings beside the database and the secret.
        prefix: what goes before the command, if anything; with one, an empty one too, the command itself is started
            instead of a fork of a process that has imported it.
        cheap_passwords: whether a fork takes hashes that cost next to nothing: most tests register somebody.
    """

    def __init__(
        self,
        folder: Path,
        *,
        plan: str = "enterprise",
        env: Mapping[str, str] | None = None,
        prefix: tuple[str, ...] | None = None,
        cheap_passwords: bool = True,
    ) -> None:
        self.folder = folder
        chosen = (env or {}).get("TOOLGATE_DATABASE_URL")
        self.database_url = database_url(folder) if chosen is None else chosen
        self.plan = plan
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")},
            "TOOLGATE_DATABASE_URL": self.database_url,
            "TOOLGATE_SECRET": SECRET,
            # All of a test comes from one address.
            "TOOLGATE_FAILED_AUTHENTICATIONS_PER_MINUTE": "1000000",
            **({} if CHOICE.redis_url is None else {"TOOLGATE_REDIS_URL": CHOICE.redis_url}),
            **(env or {}),
        }
        self._prefix = prefix
        self._cheap_passwords = cheap_passwords
        self._port = 0
        self._balancer: Balancer | None = None
        self._others: list[subprocess.Popen[str] | Forked] = []
        self.process: subprocess.Popen[str] | Forked | None = None
        self.url = ""
        #: addresses of the replicas themselves, without the balancer
        self.replica_urls: list[str] = []
        #: the start-up summary, of the first replica
        self.announced = ""

    @property
    def metrics_url(self) -> str:
        """Where its metrics are, as the start-up summary says."""
        found = re.search(r"metrics +(http://\S+/metrics)", self.announced)
        assert found, self.announced
        return found.group(1)

    @property
    def database(self) -> Path:
        """The SQLite file, for what is about files."""
        return database_file(self.folder)

    def start(self) -> Self:
        """Start, or start again on the same port and data; return once it listens."""
        port = self._port if CHOICE.replicas == 1 else 0
        self.process, *self._others = [
            self._begin("serve", "--port", str(port), "--plan", self.plan) for _ in range(CHOICE.replicas)
        ]
        lines = [self._read_summary(process) for process in (self.process, *self._others)]
        self.announced, ports = lines[0], [_port_in(line) for line in lines]
        self.replica_urls = [f"http://127.0.0.1:{port}" for port in ports]
        if self._others:
            self._balancer = Balancer(ports, port=self._port)
            ports = [self._balancer.port]
        self._port = ports[0]
        self.url = f"http://127.0.0.1:{self._port}"
        return self

    def _begin(self, *arguments: str) -> subprocess.Popen[str] | Forked:
        if self._prefix is None:
            return FORK_SERVER.start(*arguments, env=self.env, cheap_passwords=self._cheap_passwords)
        command = [*self._prefix, *self.command(*arguments)]
        return subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, text=True)

    def command(self, *arguments: str) -> list[str]:
        """Return the command that is started if a prefix is given."""
        return [sys.executable, "-m", "toolgate", *arguments]

    def _read_summary(self, process: subprocess.Popen[str] | Forked) -> str:
        assert process.stdout is not None
        return read_summary(process.stdout)

    def kill(self) -> None:
        """End it without a word: SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it properly: SIGTERM."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.process is None:
            return
        everyone = [self.process, *self._others]
        for process in everyone:
            process.send_signal(how)
        for process in everyone:
            process.wait(timeout=30)
            assert process.stdout is not None
            assert_none(printed(process.stdout))
        if self._balancer is not None:
            self._balancer.stop()
        self.process, self._others, self._balancer = None, [], None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _port_in(line: str) -> int:
    match = re.search(r"http://\S+:(\d+)", line)
    assert match, f"the gateway did not start: {line!r}"
    return int(match.group(1))


class Flushed(Protocol):
    """What sends log entries in the background."""

    def flush(self, timeout: float) -> bool:
        """Wait until they are sent."""


class Owner:
    """The admin of a new organization."""

    def __init__(self, url: str, *, email: str | None = None, organization: str = "Acme") -> None:
        self.url = url
        #: what sends log entries in the background; it is waited for before the log is read
        self.guards: list[Flushed] = []
        self.email = email or f"owner-{time.time_ns()}@example.test"
        self.http = httpx.Client(base_url=url, timeout=30)
        answer = self.http.post(
            "/auth/register",
            json={"email": self.email, "password": PASSWORD, "organization_name": organization},
        )
        assert answer.status_code == 200, answer.text
        self.user: dict[str, Any] = answer.json()["user"]
        self.token: str = answer.json()["access_token"]
        self.http.headers["Authorization"] = f"Bearer {self.token}"
        self.key: str = self.http.get("/api/organization").json()["api_key"]

    def login(self) -> httpx.Client:
        """Return a client with a fresh token."""
        answer = httpx.post(
            f"{self.url}/auth/login", json={"email": self.email, "password": PASSWORD}, timeout=30
        )
        assert answer.status_code == 200, answer.text
        token = answer.json()["access_token"]
        return httpx.Client(base_url=self.url, timeout=30, headers={"Authorization": f"Bearer {token}"})

    def agent(self, name: str = "bot") -> str:
        """Create an agent and return its id."""
        answer = self.http.post("/api/agents", json={"name": name})
        assert answer.status_code == 201, answer.text
        agent_id: str = answer.json()["id"]
        return agent_id

    def permit(self, agent_id: str, action: str, **fields: object) -> str:
        """Grant an action and return the permission's id."""
        answer = self.http.post(f"/api/agents/{agent_id}/permissions", json={"action": action, **fields})
        assert answer.status_code == 201, answer.text
        permission_id: str = answer.json()["id"]
        return permission_id

    def check(self, agent_id: str, action: str, context: object = None, **fields: object) -> httpx.Response:
        """Ask the gateway as the SDK does."""
        body = {"agent_id": agent_id, "action": action, "context": context, **fields}
        return self.http.post("/sdk/check", json=body, headers={"X-API-Key": self.key})

    def log(self, agent_id: str, action: str, status: str = "success", **fields: object) -> httpx.Response:
        """Record an outcome as the SDK does."""
        body = {"agent_id": agent_id, "action": action, "status": status, **fields}
        return self.http.post("/sdk/log", json=body, headers={"X-API-Key": self.key})

    def entries(self, **filters: str | int) -> list[dict[str, Any]]:
        """Read the log, newest first, once what guards recorded is there."""
        for guard in self.guards:
            assert guard.flush(30)
        answer = self.http.get("/api/logs", params=filters)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()
        return found

    def close(self) -> None:
        """Hang up."""
        self.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
