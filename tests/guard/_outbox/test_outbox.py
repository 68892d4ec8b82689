"""What an outbox stores, its limits, and its files before and after forks."""

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
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.outboxes import outbox_file, stored

from toolgate._outbox import Busy, OutboxFault
from toolgate._outbox.outbox import Outbox, entry_text
from toolgate._outbox.store import FileLock
from toolgate._settings import Place

from .conftest import OURS, entry, waiting

Make = Callable[..., Outbox]


def again(work: Callable[[], Any]) -> Any:
    """Repeat while another thread is writing."""
    while True:
        try:
            return work()
        except Busy:
            continue


def totals(outbox: Outbox) -> tuple[int, int]:
    found: tuple[int, int] = outbox._do(lambda db: db.execute("SELECT rows, bytes FROM totals").fetchone())
    return found


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
    assert row.body == entry_text(one.body, one.key)
    assert '"amount":12.500' in row.body
    assert f'"idempotency_key":"{one.key}"' in row.body


def test_another_process_sees_it_at_once(outbox: Outbox, place: Place) -> None:
    """An intent is committed when `intend` returns: whoever opens the file finds it."""
    outbox.intend(entry())
    assert place.path is not None
    assert [state for state, _ in stored(place.path)] == [0]


def test_the_key_is_not_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the API key nor anything it can be guessed from stands in the outbox or beside it."""
    from toolgate._outbox.sender import make_sender
    from toolgate._settings import load_settings

    key = "ak_" + "s3cr3t" * 6 + "z"
    place = Place(tmp_path / "outbox")
    sender = make_sender(
        load_settings("https://gateway.example", key, "agent-1"), place, lambda: pytest.fail("sent")
    )
    sender.outbox.add(entry())
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert b"s3cr3t" not in file.read_bytes()
    sender.outbox.close()


@pytest.mark.skipif(os.name != "posix", reason="rights of files are POSIX")
def test_only_its_user_may_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default folder is 0700; the file, and those SQLite puts beside it, are 0600."""
    from toolgate._settings import load_place

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    os.umask(os.umask(0))
    outbox = Outbox(load_place(), OURS)
    outbox.add(entry())
    folder = tmp_path / "state" / "toolgate"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "outbox").stat().st_mode) == 0o700
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert {file.suffix for file in files} >= {".db", ".db-wal", ".db-shm", ".lock"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    outbox.close()


@pytest.mark.parametrize("word", ["memory", ":memory:"])
def test_memory_is_no_file(word: str) -> None:
    """Both words for memory mean it: a file named `:memory:` is what nobody wants."""
    from toolgate._settings import load_place

    assert load_place(word).path is None


def test_full(make_outbox: Make) -> None:
    """At the bound nothing more is begun, exactly, and what was begun is still finished."""
    outbox = make_outbox(rows=3)
    intents = [outbox.intend(entry()) for _ in range(3)]
    for refused in (lambda: outbox.intend(entry()), lambda: outbox.add(entry()), outbox.check_space):
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


def test_the_limits_are_those_of_the_folder(make_outbox: Make) -> None:
    """What other processes store counts, and no longer once they have sent it."""
    outbox, other = make_outbox(rows=3), make_outbox(rows=3)
    outbox.add(entry())
    other.add(entry())
    other.add(entry())
    for refused in (outbox, other):
        with pytest.raises(OutboxFault, match="full: 3 log entries wait"):
            again(refused.check_space)
    with pytest.raises(OutboxFault, match="full"):
        other.intend(entry())
    outbox.settle(waiting(outbox), [])
    other.intend(entry())
    with pytest.raises(OutboxFault, match="full"):
        other.intend(entry())


def test_totals_follow(make_outbox: Make) -> None:
    """Whatever is added, finished, laid aside and removed, the totals are those of what is there."""
    outbox = make_outbox()
    intent = outbox.intend(entry())
    outbox.add(entry("parked"))
    outbox.add(entry("gone"))
    outbox.finish(entry(more="x" * 500), intent)
    first, second, third = waiting(outbox)
    outbox.settle([third], [(second, "400")])
    rows, size = totals(outbox)
    assert rows == 2
    assert len(second.body) + len(waiting(outbox)[0].body) <= size - 400 < 3_000
    counted = outbox._do(lambda db: db.execute("SELECT sum(bytes) FROM entries").fetchone())
    assert counted == (size - 400,)
    outbox.settle([first], [])
    assert totals(outbox)[0] == 1


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


@pytest.mark.parametrize("made", ["file", "missing folder", "link"])
def test_a_place_that_cannot_be_used(tmp_path: Path, made: str, make_outbox: Make) -> None:
    """The error names the place and the setting."""
    path = tmp_path / "outbox"
    if made == "file":
        path.touch()
    elif made == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        (tmp_path / "file").touch()
        path = tmp_path / "file" / "outbox"
    with pytest.raises(OutboxFault, match="TOOLGATE_OUTBOX") as fault:
        make_outbox(path=path).add(entry())
    assert repr(str(path)) in str(fault.value)


def test_busy(outbox: Outbox) -> None:
    """While another process writes the caller is told at once, and nothing is half written."""
    outbox.add(entry())
    assert outbox.file is not None
    with closing(sqlite3.connect(outbox.file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy):
            outbox.add(entry())
        other.execute("ROLLBACK")
    outbox.add(entry())
    assert len(waiting(outbox)) == 2


def test_an_empty_file_is_deleted(make_outbox: Make, tmp_path: Path) -> None:
    """Closed with nothing left, the file and its lock are gone; with something left they stay."""
    tidy, untidy = make_outbox(), make_outbox()
    tidy.add(entry())
    tidy.settle(waiting(tidy), [])
    untidy.add(entry())
    tidy.close()
    untidy.close()
    assert sorted(file.suffix for file in (tmp_path / "outbox").iterdir()) == [".db", ".lock"]


def test_a_file_that_cannot_be_read_is_not_deleted(make_outbox: Make) -> None:
    """It may hold entries: only a file that is known to be empty is deleted."""
    outbox = make_outbox()
    outbox.add(entry())
    file = outbox.file
    assert file is not None
    outbox._do(lambda db: db.execute("DROP TABLE totals"))
    outbox.close()
    assert file.exists()
    lock = FileLock.acquire(file.with_suffix(".lock"))
    assert lock is not None
    lock.release()


def test_closed_while_a_tool_runs_the_file_stays_locked(make_outbox: Make) -> None:
    """Otherwise another process would send the intent as a call with an unknown outcome."""
    outbox = make_outbox()
    intent = outbox.intend(entry("began"))
    file = outbox.file
    assert file is not None
    outbox.close()
    assert FileLock.acquire(file.with_suffix(".lock")) is None
    outbox.finish(entry("ended"), intent)
    assert ['"ended"' in row.body for row in waiting(outbox)] == [True]
    outbox.close()
    assert outbox.file is None
    lock = FileLock.acquire(file.with_suffix(".lock"))
    assert lock is not None
    lock.release()


def test_in_memory(make_outbox: Make, tmp_path: Path) -> None:
    """`memory` leaves no file."""
    outbox = make_outbox(path=None)
    intent = outbox.intend(entry())
    outbox.finish(entry(), intent)
    assert len(waiting(outbox)) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_a_released_lock_is_released_for_forked_children_too(tmp_path: Path) -> None:
    """A child that was forked past Python has the same file open."""
    path = tmp_path / "a.lock"
    lock = FileLock(path)
    assert lock._descriptor is not None
    # What a fork does with it.
    childs = os.dup(lock._descriptor)
    try:
        assert FileLock.acquire(path) is None
        lock.release()
        again = FileLock.acquire(path)
        assert again is not None
        again.release()
    finally:
        os.close(childs)


RELEASING = """
import os, sys
from pathlib import Path
from toolgate._outbox.store import FileLock
lock = FileLock(Path(sys.argv[1]))
child = os.fork()
if child == 0:
    lock.release()
    os._exit(FileLock.acquire(Path(sys.argv[1])) is not None)
assert os.waitpid(child, 0)[1] == 0, "the child has released its parent's lock"
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_a_child_does_not_release_the_lock_of_its_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", RELEASING, str(tmp_path / "a.lock")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


FORKED = """
import os, sys
from toolgate._outbox.outbox import Outbox, entry_text
from toolgate._settings import Place
from toolgate._outbox.store import Target
from toolgate._call import new_entry
from toolgate._outbox.store import Busy
from toolgate._outbox.recovery import adopt_files
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
    assert adopt_files(outbox, lambda: True) == (0, True), "the parent lives"
    os._exit(0)
for n in range(50):
    again(outbox.finish, entry("parent"), again(outbox.intend, entry("parent")))
assert os.waitpid(child, 0)[1] == 0
outbox.finish(entry("parent"), intent)
assert outbox.count() == 51
assert adopt_files(outbox, lambda: True) == (50, True), "the child is gone"
assert outbox.count() == 101
outbox.close()
"""


TIDYING = """
import os, sys, threading
from toolgate._outbox.outbox import Outbox, entry_text
from toolgate._settings import Place
from toolgate._outbox.store import Target
from toolgate._call import new_entry
from pathlib import Path
import sqlite3
begun, sqlite = threading.Event(), sqlite3.connect
class Slow(sqlite3.Connection):
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
sqlite3.connect = slow
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
    command = [sys.executable, "-W", "error", "-c", TIDYING, str(tmp_path / "outbox")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_after_a_fork_there_are_two_files(tmp_path: Path) -> None:
    """Parent and child write to a file of their own, and the parent adopts what the child left."""
    command = [sys.executable, "-W", "error", "-c", FORKED, str(tmp_path / "outbox")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with closing(sqlite3.connect(outbox_file(tmp_path / "outbox"))) as file:
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
