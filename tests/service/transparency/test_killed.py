"""Gateways and sealers that are killed: each committed row has one leaf, and no published checkpoint is contradicted."""

import asyncio
import multiprocessing
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from support.gateway import SECRET, LiveGateway, Owner
from support.verified_log import verify
from support.waiting import until
from support.wire import GONE

from toolgate_cli.log.verification.notes import Key, open_checkpoint
from toolgate_cli.log.verification.state import State
from toolgate_service.core.crypto import Vault
from toolgate_service.core.settings import Settings
from toolgate_service.db.database import open_database
from toolgate_service.transparency.sealer import Sealer

#: sealers that work at the same time as those of the gateway
SEALERS = 3
ACTION = "stripe.refund"


def seal_forever(url: str) -> None:
    """Seal without pauses until the process is killed."""

    async def work() -> None:
        settings = Settings(database_url=url, secret=SecretStr(SECRET))
        database = open_database(url)
        await database.start(migrate=False)
        sealer = Sealer.of(database, settings, Vault.of(settings), None)
        while True:
            await sealer.seal_all()

    asyncio.run(work())


class Work:
    """Threads that write log entries and read checkpoints while processes are killed.

    Attributes:
        acknowledged: Ids of log entries that the gateway has acknowledged.
        notes: Published checkpoints.
    """

    def __init__(self, gateway: LiveGateway, owner: Owner) -> None:
        self._gateway, self._owner = gateway, owner
        self._agent = owner.agent()
        self._ended = threading.Event()
        self.acknowledged: set[str] = set()
        self.notes: set[str] = set()

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [
            threading.Thread(target=self._loop, args=(one,)) for one in (self._write, self._write, self._read)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in threads:
                thread.join()

    def wait_for_entry(self) -> None:
        """Wait until the gateway acknowledges further entries."""
        before = len(self.acknowledged)
        until(lambda: len(self.acknowledged) > before)

    def _loop(self, work: object) -> None:
        with httpx.Client(timeout=30) as client:
            while not self._ended.is_set():
                try:
                    work(client)  # type: ignore[operator]  # one of the two methods below
                except (*GONE, httpx.TransportError):
                    self._ended.wait(0.05)

    def _send(self, client: httpx.Client, method: str, path: str, **fields: Any) -> httpx.Response:
        # Read a stream: without replicas, the balancer has an answer of its own, which no document describes.
        with client.stream(method, self._gateway.url + path, **fields) as answer:
            answer.read()
        return answer

    def _write(self, client: httpx.Client) -> None:
        headers = {"X-API-Key": self._owner.key}
        body = {"agent_id": self._agent, "action": ACTION, "status": "success", "context": {"n": 1}}
        answer = self._send(client, "POST", "/sdk/logs", json={"entries": [body] * 5}, headers=headers)
        if answer.status_code == httpx.codes.OK:
            self.acknowledged.update(one["entry"]["id"] for one in answer.json()["results"])

    def _read(self, client: httpx.Client) -> None:
        path = f"/tlog/{self._owner.user['organization_id']}/production/checkpoint"
        answer = self._send(client, "GET", path)
        if answer.status_code == httpx.codes.OK:
            self.notes.add(answer.text)
        self._ended.wait(0.02)


def verify_everything(owner: Owner, work: Work) -> None:
    """Verify that every acknowledged entry has its leaf, and that the log extends every published checkpoint."""
    key = Key.parse(owner.http.get("/api/transparency").json()["vkey"])
    seen = State()
    seen.add(key, [open_checkpoint(note, key) for note in work.notes])
    result = verify(owner, seen)
    assert result.findings == []
    assert result.counts["earlier checkpoints"] == len(work.notes) > 0
    assert result.counts["log_entry"] >= len(work.acknowledged) > 0


@pytest.mark.parametrize(
    "kills", [pytest.param(5, id="short"), pytest.param(200, marks=pytest.mark.slow, id="long")]
)
def test_killed_sealers_leave_no_fork_and_no_gap(tmp_path: Path, kills: int) -> None:
    moments = random.Random(1)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        work = Work(gateway, owner)
        with work.running():
            sealers = [
                processes.Process(target=seal_forever, args=(gateway.database_url,)) for _ in range(SEALERS)
            ]
            for sealer in sealers:
                sealer.start()
            for number in range(kills):
                # Forked processes work after a few hundredths of a second.
                time.sleep(0.3 + moments.random() * 0.3)
                sealers[number % SEALERS].kill()
                sealers[number % SEALERS].join()
                sealers[number % SEALERS] = processes.Process(
                    target=seal_forever, args=(gateway.database_url,)
                )
                sealers[number % SEALERS].start()
            for sealer in sealers:
                sealer.kill()
                sealer.join()
        verify_everything(owner, work)


@pytest.mark.parametrize(
    "kills", [pytest.param(2, id="short"), pytest.param(40, marks=pytest.mark.slow, id="long")]
)
def test_killed_gateways_leave_no_fork_and_no_gap(tmp_path: Path, kills: int) -> None:
    moments = random.Random(1)
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        work = Work(gateway, owner)
        with work.running():
            for _ in range(kills):
                work.wait_for_entry()
                time.sleep(moments.random() * 1.5)
                gateway.kill()
                gateway.start()
        verify_everything(owner, work)
