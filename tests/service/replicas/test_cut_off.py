"""A replica whose network fails: it refuses rather than guess, the others go on, and retries find what was stored."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from sqlalchemy import make_url
from support.crowd import together
from support.databases import database_url
from support.gateway import LiveGateway, Owner
from support.lines import Line, Lines
from support.waiting import until
from support.wire import Wire

pytestmark = pytest.mark.postgresql_only("an SQLite gateway has no network before its database")

#: what a transaction says last, as it goes over the wire
COMMIT = b"COMMIT"


@dataclass
class Two:
    """Two replicas, one of which reaches the database over a line that fails on demand."""

    near: LiveGateway
    far: LiveGateway
    line: Line


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    folder = tmp_path_factory.mktemp("two")
    there = make_url(database_url(folder))
    assert there.port is not None
    with Lines() as lines:
        line = lines.to(there.port)
        here = there.set(host="127.0.0.1", port=line.port).render_as_string(hide_password=False)
        near, far = LiveGateway(folder), LiveGateway(folder, env={"TOOLGATE_DATABASE_URL": here})
        try:
            together(near.start, far.start)
            yield Two(near, far, line)
        finally:
            line.heal()
            near.stop()
            far.stop()


@pytest.fixture
def owner(two: Two) -> Iterator[Owner]:
    with Owner(two.near.url) as owner:
        yield owner
    two.line.heal()


@pytest.mark.parametrize("times", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_a_retry_finds_what_an_unanswered_commit_stored(two: Two, owner: Owner, times: int) -> None:
    """The connection cut between commit and answer: 503, and the retry under the key is the entry that was stored."""
    agent, sent, cut = owner.agent(), 0, 0
    while cut < times:
        number, swallowed = sent, two.line.swallowed()
        sent += 1
        assert sent < times + 10
        body = {"agent_id": agent, "action": "cut.off", "status": "success", "context": {"n": number}}
        two.line.swallow(COMMIT)
        with Wire.of(owner, two.far.url) as wire:
            first = wire.send("POST", "/sdk/log", body, {"Idempotency-Key": f"key-{number}"})
        assert two.line.swallowed() == swallowed + 1
        if first.status == 200:
            # The connection of a background job was cut instead.
            continue
        cut += 1
        assert first.status == 503, first.raw
        assert int(first.headers["Retry-After"]) >= 1
        for gateway in (two.near, two.far, two.near):
            with Wire.of(owner, gateway.url) as wire:
                again = wire.send("POST", "/sdk/log", body, {"Idempotency-Key": f"key-{number}"})
                assert again.status == 200, again.raw
    with Wire.of(owner) as wire:
        assert sorted(entry["context"]["n"] for entry in wire.entries("cut.off")) == list(range(sent))


def test_an_approval_whose_use_was_not_answered_is_used(two: Two, owner: Owner) -> None:
    """The connection cut between the commit that uses an approval and its answer: the tool was not let through, and
    the approval lets no second check through without its key; with its key the same answer comes."""
    agent = owner.agent()
    owner.permit(agent, "files.delete", requires_approval=True)
    question = {"agent_id": agent, "action": "files.delete"}
    with Wire.of(owner) as near, Wire.of(owner, two.far.url) as far:
        status, attempt = 200, 0
        # If the check gets 200, the connection of a background job was cut instead.
        while status == 200:
            attempt += 1
            assert attempt < 10
            key = {"Idempotency-Key": f"attempt-{attempt}"}
            asked = near.send("POST", "/sdk/check", question).json()["approval_id"]
            assert near.send("POST", f"/api/approvals/{asked}/approve", {}).status == 200
            two.line.swallow(COMMIT)
            status = far.send("POST", "/sdk/check", question, key).status
        assert status == 503
        with_key = [wire.send("POST", "/sdk/check", question, key).json() for wire in (near, far)]
        assert [answer["allowed"] for answer in with_key] == [True, True]
        assert not near.send("POST", "/sdk/check", question).json()["allowed"]


def test_a_replica_split_from_the_database_refuses_and_the_other_goes_on(two: Two, owner: Owner) -> None:
    """Cut off, a replica allows nothing and calls itself not ready; what is revoked meanwhile it refuses when it is back."""
    agent = owner.agent()
    granted = owner.permit(agent, "files.read")
    with Wire.of(owner) as near, Wire.of(owner, two.far.url) as far:
        assert far.allowed(agent, "files.read")
        two.line.cut()
        assert near.allowed(agent, "files.read")
        for answer in (
            far.check(agent, "files.read"),
            far.log(agent, "files.read"),
            far.send("DELETE", f"/api/permissions/{granted}"),
            far.send("GET", "/health/ready"),
        ):
            assert answer.status == 503, answer.raw
            assert int(answer.headers["Retry-After"]) >= 1
        assert near.send("DELETE", f"/api/permissions/{granted}").status == 204
        two.line.heal()
        heard = until(lambda: (answer := far.check(agent, "files.read")).status == 200 and answer)
        assert not heard.json()["allowed"]
        assert until(lambda: far.send("GET", "/health/ready").status == 200)
