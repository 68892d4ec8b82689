"""A disk that cannot sync: nothing is acknowledged, reading goes on, and the gateway recovers by itself."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.traces import TRACEABLE, Strace
from support.wire import Heard, Wire

pytestmark = pytest.mark.sqlite_only(
    "the faults are put into the syncs of the gateway itself; PostgreSQL syncs in processes of its own"
)

CLIENTS = 8
ALWAYS = "fsync,fdatasync:error=EIO"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[LiveGateway]:
    """A gateway whose disk may be made to fail."""
    with LiveGateway(tmp_path, prefix=TRACEABLE) as gateway:
        yield gateway


def _broken_disk(gateway: LiveGateway, folder: Path) -> Strace:
    assert gateway.process is not None
    return Strace(gateway.process.pid, folder / "trace", inject=ALWAYS)


def _refused(owner: Owner, agent: str, action: str, many: int) -> Callable[[int], Callable[[], list[Heard]]]:
    def work(client: int) -> list[Heard]:
        with Wire.of(owner) as wire:
            return [
                wire.log(agent, action, key=f"{action}-{client}-{n}", key_sent=f"{action}-{client}-{n}")
                for n in range(many)
            ]

    return lambda client: lambda: work(client)


def _assert_unavailable(answer: Heard) -> None:
    assert answer.status == 503, answer.raw
    assert int(answer.headers["Retry-After"]) >= 1
    assert "retry after" in answer.json()["detail"]
    assert "sqlite" not in answer.raw.decode().lower()


@pytest.mark.parametrize("killed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_nothing_is_acknowledged_while_the_disk_cannot_sync(
    killed: bool, gateway: LiveGateway, tmp_path: Path
) -> None:
    """With every sync failing /sdk/log answers 503 only; later, restarted or not, retries leave one entry each."""
    many = 10
    with Owner(gateway.url) as owner, Wire.of(owner) as wire:
        agent = owner.agent()
        kept = {wire.log(agent, "before", number=n).json()["id"] for n in range(20)}
        with _broken_disk(gateway, tmp_path) as strace:
            one_by_one = _refused(owner, agent, "one", many)
            crowd = _refused(owner, agent, "crowd", many)
            answers = together(one_by_one(0)) + together(*map(crowd, range(CLIENTS)))
            assert len(answers) == 1 + CLIENTS
            for answer in (answer for heard in answers for answer in heard):
                _assert_unavailable(answer)
            if killed:
                gateway.kill()
        assert "EIO" in strace.output.read_text()
    if killed:
        gateway.start()
    with Wire.of(owner) as wire:
        for action, clients in (("one", 1), ("crowd", CLIENTS)):
            keys = [f"{action}-{client}-{n}" for client in range(clients) for n in range(many)]
            before = {entry["context"]["key_sent"]: entry["id"] for entry in wire.entries(action)}
            for key in keys:
                again = wire.log(agent, action, key=key, key_sent=key)
                assert again.status == 200, again.raw
                assert again.json()["id"] == before.get(key, again.json()["id"])
            counted = Counter(entry["context"]["key_sent"] for entry in wire.entries(action))
            assert counted == dict.fromkeys(keys, 1)
        assert {entry["id"] for entry in wire.entries("before")} == kept


def test_reading_goes_on_and_changes_are_refused(gateway: LiveGateway, tmp_path: Path) -> None:
    """With every sync failing checks and lists answer as before, and no change, held check or login is acknowledged."""
    with Owner(gateway.url) as owner, Wire.of(owner) as wire:
        agent = owner.agent()
        granted = owner.permit(agent, "files.read")
        owner.permit(agent, "files.delete", requires_approval=True)
        owner.permit(agent, "files.move", requires_approval=True)
        asked = wire.check(agent, "files.move").json()["approval_id"]
        with _broken_disk(gateway, tmp_path):
            for answer in (
                wire.send("POST", "/api/agents", {"name": "another"}),
                wire.send("PUT", f"/api/agents/{agent}", {"status": "inactive"}),
                wire.send("DELETE", f"/api/permissions/{granted}"),
                wire.send("POST", "/api/organization/regenerate-key"),
                wire.send("POST", f"/api/approvals/{asked}/approve", {}),
                wire.check(agent, "files.delete"),
            ):
                _assert_unavailable(answer)
                assert answer.headers["X-Request-ID"]
            assert wire.allowed(agent, "files.read")
            assert not wire.allowed(agent, "files.write")
            assert [one["id"] for one in wire.send("GET", "/api/agents").json()] == [agent]
            assert wire.send("GET", f"/sdk/approvals/{asked}").json()["status"] == "pending"
            assert wire.send("GET", "/api/logs").status == 200
            assert wire.send("GET", "/health").status == 200
        assert wire.send("POST", "/api/agents", {"name": "another"}).status == 201
        assert wire.send("POST", f"/api/approvals/{asked}/approve", {}).status == 200
        assert wire.send("DELETE", f"/api/permissions/{granted}").status == 204
        assert not wire.allowed(agent, "files.read")
        assert len(wire.send("GET", "/api/agents").json()) == 2
