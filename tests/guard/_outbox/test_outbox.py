"""What is written down, who owns it, and what happens when it cannot be."""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from toolgate._outbox.faults import Busy, OutboxFault
from toolgate._outbox.outbox import Outbox
from toolgate._outbox.owners import claim
from toolgate._outbox.place import Place
from toolgate._outbox.store import Row, Target

from .conftest import OURS, entry

Make = Callable[..., Outbox]


def asked() -> bool:
    return True


def waiting(outbox: Outbox) -> list[Row]:
    rows = [
        *outbox.batch(old=False, after=0, limit=100),
        *outbox.batch(old=True, after=0, limit=100),
    ]
    return sorted(rows, key=lambda row: row.id)


def again(work: Callable[[], Any]) -> Any:
    """Until nobody else is writing."""
    while True:
        try:
            return work()
        except Busy:
            continue


def die(outbox: Outbox) -> None:
    """What remains of an owner whose process was killed: its rows, and a lock nobody holds."""
    assert outbox._owner is not None
    outbox._owner.let_go()


def test_an_intent_is_not_sent_until_it_is_finished(outbox: Outbox) -> None:
    """Before the tool there is something on disk, and nothing to send; after it the same entry is ready."""
    began, ended = entry("began"), entry("ended")
    intent = outbox.intend(began)
    assert not outbox.waits()
    outbox.finish(ended, intent)
    [row] = waiting(outbox)
    assert row.key == began.key
    assert '"ended"' in row.body


def test_what_is_sent_is_what_was_written(outbox: Outbox) -> None:
    """An entry's JSON stands in the outbox as it goes out, with its key, and numbers keep their digits."""
    from decimal import Decimal

    one = entry(amount=Decimal("12.500"))
    outbox.add(one)
    [row] = waiting(outbox)
    assert row.body == one.text()
    assert '"amount":12.500' in row.body
    assert f'"idempotency_key":"{one.key}"' in row.body


def test_another_process_sees_it_at_once(outbox: Outbox, place: Place) -> None:
    """An intent is committed when `intend` returns: whoever opens the file finds it."""
    outbox.intend(entry())
    assert place.path is not None
    with closing(sqlite3.connect(place.path)) as other:
        assert other.execute("SELECT state FROM entries").fetchall() == [(0,)]


def test_what_a_dead_owner_left_is_taken_over(make_outbox: Make) -> None:
    """Ready entries and orphan intents go out as they are; what a live owner has stays."""
    dead, alive, heir = make_outbox(), make_outbox(), make_outbox()
    for outbox in (dead, alive):
        outbox.add(entry("ready"))
        outbox.intend(entry("unknown"))
    die(dead)
    assert heir.adopt(asked) == 2
    assert [('"ready"' in row.body, '"unknown"' in row.body) for row in waiting(heir)] == [
        (True, False),
        (False, True),
    ]
    assert heir.adopt(asked) == 0
    assert len(waiting(alive)) == 1


def test_of_many_heirs_one_inherits(make_outbox: Make) -> None:
    """An entry is taken over once, however many look at the same moment."""
    dead = make_outbox()
    for _ in range(20):
        dead.add(entry())
    die(dead)
    heirs = [make_outbox() for _ in range(4)]
    for heir in heirs:
        heir.room()
    gate, adopted = threading.Barrier(len(heirs)), list[int]()

    def adopt(heir: Outbox) -> None:
        gate.wait()
        while True:
            try:
                adopted.append(heir.adopt(asked) or 0)
                return
            except Busy:
                continue

    threads = [threading.Thread(target=adopt, args=(heir,)) for heir in heirs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(adopted) == 20
    keys = [row.key for heir in heirs for row in waiting(heir)]
    assert len(keys) == len(set(keys)) == 20


@pytest.mark.parametrize(
    ("theirs", "inherits"),
    [
        (OURS, True),
        (replace(OURS, fingerprint="0" * 64), True),
        (replace(OURS, organization=None), True),
        (replace(OURS, organization="org-2"), False),
        (replace(OURS, environment="test"), False),
        (replace(OURS, url="https://other.example"), False),
        (replace(OURS, organization=None, fingerprint="0" * 64), False),
    ],
    ids=["same", "key replaced", "same key", "organization", "environment", "gateway", "other key"],
)
def test_entries_go_where_they_were_meant_to(make_outbox: Make, theirs: Target, inherits: bool) -> None:
    """Only the same gateway, organization and environment; where that was not known, only the same key."""
    dead, heir = make_outbox(theirs), make_outbox()
    dead.add(entry())
    die(dead)
    assert heir.adopt(asked) == inherits
    assert outbox_rows(heir) == 1


def outbox_rows(outbox: Outbox) -> int:
    return outbox._do(lambda store: store.totals())[0]


def test_an_entry_learns_its_organization(make_outbox: Make) -> None:
    """Entries written before any answer named the organization belong to that of their key, once it is named."""
    early = make_outbox(replace(OURS, organization=None))
    early.add(entry())
    early.learn("org-1", "production")
    early.add(entry())
    die(early)
    # Another key of the same organization.
    assert make_outbox(replace(OURS, fingerprint="0" * 64)).adopt(asked) == 2


def test_nothing_is_taken_over_while_nobody_says_whose_it_is(make_outbox: Make) -> None:
    """Without an answer from the gateway what others left stays where it is."""
    dead, heir = make_outbox(), make_outbox()
    dead.add(entry())
    die(dead)
    assert heir.adopt(lambda: False) is None
    assert heir.adopt(asked) == 1


def test_the_key_is_not_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the API key nor anything it can be guessed from stands in the outbox or beside it."""
    from toolgate._outbox.parts import Parts
    from toolgate.settings import load_settings

    key = "ak_" + "s3cr3t" * 6 + "z"
    place = Place(tmp_path / "outbox.db")
    parts = Parts(
        load_settings("https://gateway.example", key, "agent-1"), place, lambda: pytest.fail("sent")
    )
    parts.outbox.add(entry())
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert b"s3cr3t" not in file.read_bytes()
    parts.outbox.close()


@pytest.mark.skipif(os.name != "posix", reason="rights of files are POSIX")
def test_only_its_user_may_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default folder is 0700; the file, and those SQLite puts beside it, are 0600."""
    from toolgate._outbox.place import load_place

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    os.umask(os.umask(0))
    outbox = Outbox(load_place(), OURS)
    outbox.add(entry())
    folder = tmp_path / "state" / "toolgate"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert {file.name for file in files} >= {"outbox.db", "outbox.db-wal", "outbox.db-shm"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    outbox.close()


@pytest.mark.parametrize("word", ["memory", ":memory:"])
def test_memory_is_no_file(word: str) -> None:
    """Both words for memory mean it: a file named `:memory:` is what nobody wants."""
    from toolgate._outbox.place import load_place

    assert load_place(word).path is None


def test_full(make_outbox: Make) -> None:
    """At the bound nothing more is begun, exactly, and what was begun is still finished."""
    outbox = make_outbox(rows=3)
    intents = [outbox.intend(entry()) for _ in range(3)]
    for refused in (lambda: outbox.intend(entry()), lambda: outbox.add(entry()), outbox.room):
        with pytest.raises(OutboxFault, match="full") as fault:
            refused()
        assert fault.value.full
    for intent in intents:
        outbox.finish(entry(more="x" * 10_000), intent)
    rows = waiting(outbox)
    assert len(rows) == 3
    outbox.settle(rows[:1], [])
    outbox.intend(entry())


def test_full_by_size(make_outbox: Make) -> None:
    """Bytes are bounded as well as entries, also by those of another owner of the file."""
    outbox, other = make_outbox(size=20_000), make_outbox(size=20_000)
    outbox.add(entry(more="x" * 30_000))
    with pytest.raises(OutboxFault, match="full"):
        other.add(entry())


def test_totals_follow(make_outbox: Make) -> None:
    """Whatever is added, finished, laid aside and removed, the totals are those of what is there."""
    outbox = make_outbox()
    intent = outbox.intend(entry())
    outbox.add(entry("parked"))
    outbox.add(entry("gone"))
    outbox.finish(entry(more="x" * 500), intent)
    first, second, third = waiting(outbox)
    outbox.settle([third], [(second, "400")])
    rows, size = outbox._do(lambda store: store.totals())
    assert rows == 2
    assert len(second.body) + len(waiting(outbox)[0].body) <= size - 400 < 3_000
    counted = outbox._do(lambda store: store._run("SELECT sum(bytes) FROM entries", ()).fetchone())
    assert counted == (size - 400,)
    outbox.settle([first], [])
    assert outbox_rows(outbox) == 1


def test_it_is_told_when_it_fills(make_outbox: Make, caplog: pytest.LogCaptureFixture) -> None:
    """One warning at half, one at nine tenths, and again only after it has been emptied."""
    outbox = make_outbox(rows=20)
    for _ in range(2):
        for _ in range(20):
            outbox.add(entry())
        assert [each.__dict__["toolgate_entries"] for each in caplog.records] == [10, 18]
        assert {each.levelno for each in caplog.records} == {logging.WARNING}
        caplog.clear()
        outbox.settle(waiting(outbox), [])


def test_a_file_of_something_else(tmp_path: Path, make_outbox: Make) -> None:
    """What is no outbox is neither used nor moved; the error says what to do."""
    (tmp_path / "outbox.db").write_bytes(b"important" * 1000)
    with pytest.raises(OutboxFault, match="move it aside"):
        make_outbox().add(entry())
    assert (tmp_path / "outbox.db").read_bytes() == b"important" * 1000


def test_a_later_version(tmp_path: Path, make_outbox: Make) -> None:
    """An outbox of a version to come is left alone."""
    with closing(sqlite3.connect(tmp_path / "outbox.db")) as later:
        later.execute("PRAGMA user_version = 9")
    with pytest.raises(OutboxFault, match=r"another version of toolgate \(9\)"):
        make_outbox().add(entry())


@pytest.mark.parametrize("made", ["folder", "missing folder", "link"])
def test_a_place_that_cannot_be_used(tmp_path: Path, made: str, make_outbox: Make) -> None:
    """The error names the place and the setting."""
    path = tmp_path / "outbox.db"
    if made == "folder":
        path.mkdir()
    elif made == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        (tmp_path / "file").touch()
        path = tmp_path / "file" / "outbox.db"
    with pytest.raises(OutboxFault, match="TOOLGATE_OUTBOX") as fault:
        make_outbox(path=path).add(entry())
    assert repr(str(path)) in str(fault.value)


def test_busy(outbox: Outbox, place: Place) -> None:
    """While another process writes the caller is told at once, and nothing is half written."""
    outbox.add(entry())
    assert place.path is not None
    with closing(sqlite3.connect(place.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy):
            outbox.add(entry())
        other.execute("ROLLBACK")
    outbox.add(entry())
    assert len(waiting(outbox)) == 2


def test_in_memory(make_outbox: Make, tmp_path: Path) -> None:
    """`memory` leaves no file."""
    outbox = make_outbox(path=None)
    intent = outbox.intend(entry())
    outbox.finish(entry(), intent)
    assert len(waiting(outbox)) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_owner_that_leaves_nothing_leaves_nothing(make_outbox: Make, tmp_path: Path) -> None:
    """Closed with nothing left, its name and its lock are gone; with something left they stay for an heir."""
    tidy, untidy = make_outbox(), make_outbox()
    tidy.add(entry())
    tidy.settle(waiting(tidy), [])
    untidy.add(entry())
    tidy.close()
    untidy.close()
    assert len(list((tmp_path / "outbox.db-owners").iterdir())) == 1
    heir = make_outbox()
    assert heir.adopt(asked) == 1
    assert len(list((tmp_path / "outbox.db-owners").iterdir())) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_a_claim_ends_for_forked_children_too(tmp_path: Path) -> None:
    """Whoever looks whether an owner lives lets go of it for good, although a child has the same file open."""
    place, token = tmp_path / "outbox.db", "a" * 32
    claimed = claim(place, token)
    assert claimed is not None
    assert claimed._descriptor is not None
    # What a fork does with it.
    childs = os.dup(claimed._descriptor)
    try:
        assert claim(place, token) is None
        claimed.let_go()
        again = claim(place, token)
        assert again is not None
        again.leave()
    finally:
        os.close(childs)


FORKED = """
import os, sys
from toolgate._outbox.outbox import Outbox
from toolgate._outbox.place import Place
from toolgate._outbox.store import Target
from toolgate._outbox.entries import new_entry
from toolgate._outbox.faults import Busy
from pathlib import Path
def again(work, *args):
    while True:
        try:
            return work(*args)
        except Busy:
            pass
def entry(action): return new_entry(action=action, agent_id="a", status="success", context={})
outbox = Outbox(Place(Path(sys.argv[1])), Target("u", "f", "production"))
intent = outbox.intend(entry("parent"))
child = os.fork()
if child == 0:
    for n in range(50):
        again(outbox.finish, entry("child"), again(outbox.intend, entry("child")))
    assert again(outbox.count) == 50
    assert again(outbox.adopt, lambda: True) == 0, "the parent lives"
    os._exit(0)
for n in range(50):
    again(outbox.finish, entry("parent"), again(outbox.intend, entry("parent")))
assert os.waitpid(child, 0)[1] == 0
outbox.finish(entry("parent"), intent)
assert outbox.count() == 51
assert outbox.adopt(lambda: True) == 50, "the child is gone"
assert outbox.count() == 101
outbox.close()
"""


TIDYING = """
import os, sys, threading
from toolgate._outbox.outbox import Outbox
from toolgate._outbox.place import Place
from toolgate._outbox.store import Target
from toolgate._outbox.entries import new_entry
from pathlib import Path
import toolgate._outbox.outbox as module
begun, sqlite = threading.Event(), module.sqlite3.connect
class Slow(module.sqlite3.Connection):
    def execute(self, *args):
        begun.set()
        # Longer than the fork takes, if the fork does not wait for it.
        forked.wait(0.5)
        return super().execute(*args)
    def close(self):
        open_ones.clear()
        super().close()
forked, open_ones = threading.Event(), []
outbox = Outbox(Place(Path(sys.argv[1])), Target("u", "f", "production"))
outbox.add(new_entry(action="a", agent_id="a", status="success", context={}))
def slow(*args, **kwargs):
    open_ones.append(1)
    return sqlite(*args, **kwargs, factory=Slow)
module.sqlite3.connect = slow
thread = threading.Thread(target=outbox.checkpoint)
thread.start()
begun.wait()
child = os.fork()
forked.set()
if child == 0:
    os._exit(len(open_ones))
thread.join()
assert os.waitpid(child, 0)[1] == 0, "the child has a connection of the parent's"
outbox.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_a_fork_waits_for_the_second_connection(tmp_path: Path) -> None:
    """No connection is open when the process forks, nor that of the thread that looks after the file."""
    command = [sys.executable, "-W", "error", "-c", TIDYING, str(tmp_path / "outbox.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_after_a_fork_there_are_two_owners(tmp_path: Path) -> None:
    """Parent and child write into the same file, each its own, and one inherits from the other."""
    command = [sys.executable, "-W", "error", "-c", FORKED, str(tmp_path / "outbox.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with closing(sqlite3.connect(tmp_path / "outbox.db")) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_many_threads(make_outbox: Make) -> None:
    """What threads write at once is all there, each once."""
    outbox = make_outbox(rows=10_000)
    problems: list[Any] = []

    def work() -> None:
        for _ in range(100):
            try:
                intent = again(partial(outbox.intend, entry()))
                again(partial(outbox.finish, entry(), intent))
            except Exception as error:
                problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert outbox.count() == 800
