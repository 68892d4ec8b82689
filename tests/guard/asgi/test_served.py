"""A guarded Starlette application on uvicorn with a gateway, over sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from support.gateway import Owner
from support.waiting import eventually

from toolgate import Guard
from toolgate.asgi import Endpoint, GuardMiddleware


class Service:
    """Refunds, and a streamed export."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, Any]] = []
        self.began = False

    async def refund(self, request: Request) -> Response:
        what = await request.json()
        self.ran.append((request.path_params["charge"], what))
        return JSONResponse(what, status_code=404 if what["amount"] == 0 else 201)

    async def export(self, _: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            for number in range(3):
                await asyncio.sleep(0)
                yield b"%d\n" % number

        return StreamingResponse(pieces())

    @asynccontextmanager
    async def life(self, _: Starlette) -> AsyncIterator[None]:
        self.began = True
        yield

    def app(self) -> Starlette:
        routes = [
            Route("/refunds/{charge}", self.refund, methods=["POST"]),
            Route("/export", self.export),
        ]
        return Starlette(routes=routes, lifespan=self.life)


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the application."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())

    async def started() -> bool:
        return server.started

    await eventually(started)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        yield client
    server.should_exit = True
    await serving


@pytest.fixture
async def guard(owner: Owner) -> AsyncIterator[Guard]:
    """The guard of the service."""
    async with Guard(owner.url, owner.key, timeout=30) as guard:
        owner.guards.append(guard)
        yield guard


def decide(owner: Owner, context: dict[str, Any] | None = None) -> None:
    [approval] = owner.http.get("/api/approvals", params={"status": "pending"}).json()
    body = {} if context is None else {"context": {**approval["context"], **context}}
    answer = owner.http.post(f"/api/approvals/{approval['id']}/approve", json=body)
    assert answer.status_code == 200, answer.text


async def pending(owner: Owner) -> Any:
    found = await asyncio.to_thread(owner.http.get, "/api/approvals", params={"status": "pending"})
    return found.json()


async def test_outcomes_of_served_requests(owner: Owner, guard: Guard) -> None:
    bot = owner.agent()
    owner.permit(bot, "stripe.refund", max_amount=100)
    owner.permit(bot, "charges.export")
    clerk = owner.agent("clerk")
    owner.permit(clerk, "stripe.refund", requires_approval=True)
    service = Service()
    app = GuardMiddleware(
        service.app(),
        actions={"POST /refunds/{charge}": "stripe.refund", "GET /export": "charges.export"},
        agent="X-Agent",
        guard=guard,
    )
    by_bot, by_clerk = {"X-Agent": bot}, {"X-Agent": clerk, "Idempotency-Key": "k-1"}
    async with served(app) as client:
        assert service.began
        statuses = [
            (await client.post("/refunds/ch_1", json={"amount": amount}, headers=by_bot)).status_code
            for amount in (40.5, 0, 400)
        ]
        assert statuses == [201, 404, 403]
        assert (await client.post("/refunds/ch_1", json={"amount": 1})).status_code == 403
        assert (await client.get("/export", headers=by_bot)).text == "0\n1\n2\n"
        held = await client.post("/refunds/ch_2", json={"amount": 40}, headers=by_clerk)
        assert held.status_code == 202
        decide(owner, {"amount": 4})
        done = await client.post("/refunds/ch_2", json={"amount": 40}, headers=by_clerk)
        assert (done.status_code, done.json()) == (201, {"amount": 4})
        over = await client.post("/refunds/ch_2", json={"amount": 40}, headers=by_clerk)
        assert over.status_code == 403
    assert service.ran == [("ch_1", {"amount": 40.5}), ("ch_1", {"amount": 0}), ("ch_2", {"amount": 4})]
    entries = await asyncio.to_thread(owner.entries)
    told = sorted((each["action"], each["status"]) for each in entries)
    assert told == [
        ("charges.export", "success"),
        ("stripe.refund", "denied"),
        ("stripe.refund", "denied"),
        ("stripe.refund", "failed"),
        ("stripe.refund", "pending"),
        ("stripe.refund", "success"),
        ("stripe.refund", "success"),
    ]


async def test_served_request_waits_for_the_decision(owner: Owner, guard: Guard) -> None:
    bot = owner.agent()
    owner.permit(bot, "stripe.refund", requires_approval=True)
    service = Service()
    app = GuardMiddleware(
        service.app(),
        actions={"POST /refunds/{charge}": Endpoint("stripe.refund", on_hold="wait", hold_timeout=60)},
        agent="X-Agent",
        guard=guard,
    )
    async with served(app) as client:
        call = asyncio.create_task(
            client.post("/refunds/ch_1", json={"amount": 40}, headers={"X-Agent": bot})
        )
        await eventually(lambda: pending(owner))
        assert service.ran == []
        await asyncio.to_thread(decide, owner)
        assert (await call).status_code == 201

        gone = asyncio.create_task(
            client.post("/refunds/ch_1", json={"amount": 50}, headers={"X-Agent": bot})
        )
        await eventually(lambda: pending(owner))
        gone.cancel()

        async def withdrawn() -> bool:
            answer = await asyncio.to_thread(owner.http.get, "/api/approvals", params={"status": "cancelled"})
            return len(answer.json()) == 1

        await eventually(withdrawn)
    assert service.ran == [("ch_1", {"amount": 40})]
