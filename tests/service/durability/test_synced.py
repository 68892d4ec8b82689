"""Acknowledged means on disk: seen from the kernel's side."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.traces import SYNCS, TRACEABLE, Story, Strace, Syscall, stories
from support.wire import Wire

pytestmark = pytest.mark.sqlite_only("the writes and syncs that are traced are those of the gateway itself")

CLIENTS = 8
MARKER = re.compile(r"traced\.[0-9a-f.-]+\.end")


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway that may be traced."""
    with LiveGateway(tmp_path_factory.mktemp("traced"), prefix=TRACEABLE) as gateway:
        yield gateway


@pytest.fixture
def owner(traced: LiveGateway) -> Iterator[Owner]:
    """The admin of a fresh organization on the traced gateway."""
    with Owner(traced.url) as owner:
        yield owner


def _pid(gateway: LiveGateway) -> int:
    assert gateway.process is not None
    return gateway.process.pid


def _record(owner: Owner, agent: str, client: int, many: int) -> list[tuple[str, int]]:
    heard = []
    with Wire.of(owner) as wire:
        for number in range(many):
            marker = f"traced.{agent}.{client}.{number}.end"
            heard.append((marker, wire.log(agent, marker, key=marker).status))
    return heard


def _log_from(owner: Owner, agent: str, clients: int, many: int) -> list[tuple[str, int]]:
    def work(client: int) -> Callable[[], list[tuple[str, int]]]:
        return lambda: _record(owner, agent, client, many)

    return [pair for heard in together(*map(work, range(clients))) for pair in heard]


def _let_the_last_answer_end(owner: Owner) -> None:
    """A client may have an answer while the call that wrote it is still ending: the next answer comes after it."""
    assert owner.http.get("/health").status_code == 200


def _assert_synced_first(calls: list[Syscall], markers: list[str]) -> None:
    told_of = stories(calls, MARKER)
    for marker in markers:
        told = told_of.get(marker, Story(None, None, None))
        assert told.written is not None, f"{marker}: the trace shows no write to the database"
        assert told.answered is not None, f"{marker}: the trace shows no answer"
        assert told.in_order, f"{marker}: answered before it was synced: {told.synced}"


@pytest.mark.parametrize("many", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_every_entry_is_synced_before_its_answer(
    many: int, traced: LiveGateway, owner: Owner, tmp_path: Path
) -> None:
    """One by one, each 200 of /sdk/log begins after a sync of the bytes of its entry has succeeded."""
    agent = owner.agent()
    with Strace(_pid(traced), tmp_path / "trace") as strace:
        heard = _log_from(owner, agent, 1, many)
        _let_the_last_answer_end(owner)
    assert {status for _, status in heard} == {200}
    _assert_synced_first(strace.calls(), [marker for marker, _ in heard])


@pytest.mark.parametrize("many", [25, pytest.param(500, marks=pytest.mark.slow)])
def test_entries_that_share_a_sync_wait_for_it(
    many: int, traced: LiveGateway, owner: Owner, tmp_path: Path
) -> None:
    """From eight clients at once, each 200 of /sdk/log begins after the sync it shares with others."""
    agent = owner.agent()
    with Strace(_pid(traced), tmp_path / "trace") as strace:
        heard = _log_from(owner, agent, CLIENTS, many)
        _let_the_last_answer_end(owner)
    assert {status for _, status in heard} == {200}
    calls = strace.calls()
    _assert_synced_first(calls, [marker for marker, _ in heard])
    syncs = [call for call in calls if call.name in SYNCS and call.target.endswith("-wal")]
    kept_in = {call.target for call in calls if call.target.startswith("/") and MARKER.search(call.arguments)}
    database = str(traced.database)
    assert kept_in <= {database, f"{database}-wal"}, "entries are written elsewhere as well"
    assert len(syncs) < len(heard), "no sync was shared: the test saw no group commit"


def test_a_failing_sync_now_and_then_never_lets_an_answer_through(
    traced: LiveGateway, owner: Owner, tmp_path: Path
) -> None:
    """While every third sync fails, each entry answered 200 has a sync of its own that succeeded before."""
    agent = owner.agent()
    fault = "fsync,fdatasync:error=EIO:when=2+3"
    with Strace(_pid(traced), tmp_path / "trace", inject=fault) as strace:
        heard = _log_from(owner, agent, 4, 25)
        _let_the_last_answer_end(owner)
    by_status = {status: [marker for marker, seen in heard if seen == status] for status in (200, 503)}
    assert len(by_status[200]) + len(by_status[503]) == len(heard)
    assert by_status[200]
    assert by_status[503]
    _assert_synced_first(strace.calls(), by_status[200])


def test_a_change_is_synced_before_its_answer(traced: LiveGateway, owner: Owner, tmp_path: Path) -> None:
    """The deletion of a permission is synced to disk between its request and its 204."""
    agent = owner.agent()

    def delete(action: str) -> tuple[list[Syscall], list[Syscall], Syscall]:
        permission = owner.permit(agent, action)
        with Strace(_pid(traced), tmp_path / action) as strace:
            assert owner.http.delete(f"/api/permissions/{permission}").status_code == 204
            _let_the_last_answer_end(owner)
        calls = [call for call in strace.calls() if call.target.endswith("-wal")]
        written = [call for call in calls if call.name == "pwrite64"]
        syncs = [call for call in calls if call.name in SYNCS and call.result == 0]
        return written, syncs, next(call for call in strace.calls() if '"HTTP/1.1 204' in call.arguments)

    written, syncs, answered = delete("taken.away")
    if written and written[-1].ended > answered.began:
        # A background job may have written after the answer.
        written, syncs, answered = delete("taken.away.again")
    assert written
    assert any(written[-1].ended < sync.began and sync.ended < answered.began for sync in syncs)
