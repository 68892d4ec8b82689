"""Several gateways in one event loop: what one does and what another hears can be put in order, to the step."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher

from support.databases import database_url
from support.gateway import PASSWORD, SECRET
from toolgate_service.app import build
from toolgate_service.core.settings import Settings
from toolgate_service.gateway import Gateway


@dataclass
class Running:
    """A gateway that runs, and a client of its application."""

    gateway: Gateway
    http: httpx.AsyncClient


@asynccontextmanager
async def running(folder: Path, **others: Any) -> AsyncIterator[Running]:
    """Run a gateway on the data that a folder stands for."""
    given: dict[str, Any] = {
        "database_url": database_url(folder),
        "secret": SECRET,
        "default_plan": "enterprise",
    }
    gateway = Gateway(Settings(**given | others))
    gateway.passwords._hasher = PasswordHash((Argon2Hasher(time_cost=1, memory_cost=8, parallelism=1),))
    transport = httpx.ASGITransport(app=build(gateway))
    await gateway.start()
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=60) as http:
            yield Running(gateway, http)
    finally:
        await gateway.stop()


@dataclass
class Member:
    """The admin of a new organization, who asks whichever gateway."""

    organization: str
    user: str
    agent: str
    headers: dict[str, str]

    @classmethod
    async def of(cls, at: Running, email: str) -> "Member":
        """Register, and make an agent that must ask before it does anything."""
        body = {"email": email, "password": PASSWORD, "organization_name": "Acme"}
        answer = await at.http.post("/auth/register", json=body)
        assert answer.status_code == 200, answer.text
        user = answer.json()["user"]
        headers = {"Authorization": f"Bearer {answer.json()['access_token']}"}
        key = (await at.http.get("/api/organization", headers=headers)).json()["api_key"]
        agent = (await at.http.post("/api/agents", json={"name": "bot"}, headers=headers)).json()["id"]
        granted = {"action": "held", "requires_approval": True}
        await at.http.post(f"/api/agents/{agent}/permissions", json=granted, headers=headers)
        return cls(user["organization_id"], user["id"], agent, headers | {"X-API-Key": key})

    async def hold(self, at: Running, number: int = 1) -> str:
        """Send a check that requires approval, again if the gateway could not decide, and return the request's id."""
        body = {"agent_id": self.agent, "action": "held", "context": {"n": number}}
        answer = await at.http.post("/sdk/check", json=body, headers=self.headers)
        for _ in range(5):
            if answer.status_code != 503:
                break
            answer = await at.http.post("/sdk/check", json=body, headers=self.headers)
        approval: str = answer.json()["approval_id"]
        return approval

    async def decide(self, at: Running, approval: str, what: str = "approve") -> None:
        """Decide about a request."""
        answer = await at.http.post(f"/api/approvals/{approval}/{what}", headers=self.headers)
        assert answer.status_code == 200, answer.text

    async def wait(self, at: Running, approval: str) -> str:
        """Wait for a decision as an agent does, and return what became of the request."""
        answer = await at.http.get(f"/sdk/approvals/{approval}?wait=60", headers=self.headers)
        status: str = answer.json()["status"]
        return status
