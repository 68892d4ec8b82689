"""How long one request keeps the event loop from everything else, by the processor time that it takes."""

import asyncio
import json
import time
from asyncio import events
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from flood import SIZE, bodies
from support.asgi import Client
from support.databases import database_url
from support.gateway import PASSWORD, SECRET

from toolgate_service.app import build
from toolgate_service.core.settings import Settings
from toolgate_service.gateway import Gateway

#: maximum time of a step in milliseconds, on a processor that adds a million numbers in `ADDING` milliseconds
MOST = 20.0
ADDING = 40.0
OPEN = (
    "/auth/login",
    "/auth/register",
    "/auth/password-reset",
    "/auth/password-reset/confirm",
    "/auth/accept-invitation",
)
UNKNOWN = {"X-API-Key": "ak_" + "0" * 37}
CLOSED: Mapping[str, Mapping[str, str]] = {
    "/sdk/check": UNKNOWN,
    "/sdk/log": UNKNOWN,
    "/sdk/logs": UNKNOWN,
    "/api/agents": {"Authorization": "Bearer a.b.c"},
    "/auth/password": {"Authorization": "Bearer a.b.c"},
}


def allowed_time() -> float:
    """Return the maximum time of a step in milliseconds on this processor, longer if it is slow."""
    fastest = float("inf")
    for _ in range(3):
        total, began = 0, time.thread_time()
        for number in range(1_000_000):
            total += number
        fastest = min(fastest, (time.thread_time() - began) * 1000)
    return MOST * max(1.0, fastest / ADDING)


@contextmanager
def longest_step(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Yield a list that at the end has the longest step of the event loop, in milliseconds of its thread's own time."""
    found = [0.0]
    run = events.Handle._run

    def measured(handle: events.Handle) -> None:
        began = time.thread_time()
        run(handle)
        found[0] = max(found[0], (time.thread_time() - began) * 1000)

    with monkeypatch.context() as patched:
        patched.setattr(events.Handle, "_run", measured)
        yield found


async def sent(app: Any, path: str, body: bytes, kind: str, headers: Mapping[str, str]) -> int:
    packed = {"Content-Encoding": "gzip"} if kind == "packed" else {}
    # In pieces, as a connection brings them.
    pieces = [body[at : at + 65_536] for at in range(0, len(body), 65_536)]
    client = Client(f"POST {path}", pieces, headers={**headers, **packed})
    # A task of its own: the test's would be one step with everything before it.
    await asyncio.create_task(client.ask(app))
    status: int = client.sent[0]["status"]
    return status


@pytest.mark.parametrize("size", [SIZE, 15 * 1024])
async def test_no_authentication_blocks_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """The worst bodies, to what needs no credential and with credentials that are wrong; and with a valid key."""
    settings = Settings(
        database_url=database_url(tmp_path),
        secret=SECRET,
        failed_authentications_per_minute=1_000_000,
        _env_file=None,
    )
    gateway = Gateway(settings)
    app = build(gateway)
    await gateway.start()
    try:
        registration = {"email": "ada@example.com", "password": PASSWORD, "organization_name": "Acme"}
        registered = await Client("POST /auth/register", registration).ask(app)
        token = json.loads(registered.sent[1]["body"])["access_token"]
        bearer = {"Authorization": f"Bearer {token}"}
        organization = await Client("GET /api/organization", headers=bearer).ask(app)
        key = {"X-API-Key": json.loads(organization.sent[1]["body"])["api_key"]}
        cases = [(path, {}) for path in OPEN] + list(CLOSED.items())
        cases += [(path, key) for path in ("/sdk/check", "/sdk/log", "/sdk/logs")] + [("/api/agents", bearer)]
        # Whatever is imported or prepared for the first request of a kind is not what is measured.
        for path, headers in cases:
            await sent(app, path, b"{}", "", headers)
        most, slow = allowed_time(), dict[tuple[str, str], float]()
        for path, headers in cases:
            for kind, body in bodies(size).items():
                with longest_step(monkeypatch) as found:
                    status = await sent(app, path, body, kind, headers)
                assert status < 500, (path, kind, status)
                if found[0] > most:
                    # A pause of the garbage collector may fall into it.
                    with longest_step(monkeypatch) as found:
                        await sent(app, path, body, kind, headers)
                    slow[path, kind] = found[0]
        assert not {case: milliseconds for case, milliseconds in slow.items() if milliseconds > most}
    finally:
        await gateway.stop()
