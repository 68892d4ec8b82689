"""Adoption of files whose processes have ended."""

from __future__ import annotations

import logging
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.outboxes import stored

from toolgate._models import Entry
from toolgate._outbox import recovery
from toolgate._outbox.outbox import Outbox, entry_text
from toolgate._outbox.recovery import adopt_files, retrieve_parked
from toolgate._outbox.store import INTENT, PARKED, READY, FileLock, Target

from .conftest import OURS, die, entry, waiting

Make = Callable[..., Outbox]

#: the shared file of version 0.1
VERSION_1 = """
CREATE TABLE owners (id INTEGER PRIMARY KEY AUTOINCREMENT, token TEXT NOT NULL UNIQUE, pid INTEGER NOT NULL);
CREATE TABLE targets (
    id INTEGER PRIMARY KEY, url TEXT NOT NULL, fingerprint TEXT NOT NULL, environment TEXT NOT NULL,
    organization TEXT
);
CREATE TABLE entries (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, owner INTEGER NOT NULL, target INTEGER NOT NULL,
    state INTEGER NOT NULL, old INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL, body TEXT NOT NULL,
    reason TEXT
);
PRAGMA journal_mode = WAL;
PRAGMA user_version = 1;
"""


@pytest.fixture(autouse=True)
def unreported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_reported", set())


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """The file of version 0.1, open in a process of that version."""
    with closing(sqlite3.connect(tmp_path / "outbox.db", isolation_level=None)) as connection:
        connection.executescript(VERSION_1)
        (tmp_path / "outbox.db-owners").mkdir()
        yield connection


def asked() -> bool:
    return True


def adopt(heir: Outbox) -> int:
    """Return how many entries are adopted."""
    found = adopt_files(heir, asked)
    assert found is not None
    return found[0]


def test_entries_of_an_ended_process_are_adopted(make_outbox: Make, tmp_path: Path) -> None:
    """Ready entries and orphan intents go out as they are, and the file is deleted; what a live process has stays."""
    dead, alive, heir = make_outbox(), make_outbox(), make_outbox()
    for outbox in (dead, alive):
        outbox.add(entry("ready"))
        outbox.intend(entry("unknown"))
    die(dead)
    assert adopt(heir) == 2
    assert [('"ready"' in row.body, '"unknown"' in row.body) for row in waiting(heir)] == [
        (True, False),
        (False, True),
    ]
    assert adopt(heir) == 0
    assert len(waiting(alive)) == 1
    files = {file for file in (tmp_path / "outbox").iterdir() if file.suffix in {".db", ".lock"}}
    assert files == {
        file.with_suffix(suffix) for file in (alive.file, heir.file) if file for suffix in (".db", ".lock")
    }


def test_one_of_many_processes_adopts_a_file(make_outbox: Make) -> None:
    """An entry is adopted once, however many processes look at the same moment."""
    dead = make_outbox()
    for _ in range(20):
        dead.add(entry())
    die(dead)
    heirs = [make_outbox() for _ in range(4)]
    for heir in heirs:
        heir.check_space()
    gate, adopted = threading.Barrier(len(heirs)), list[int]()

    def work(heir: Outbox) -> None:
        gate.wait()
        adopted.append(adopt(heir))

    threads = [threading.Thread(target=work, args=(heir,)) for heir in heirs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(adopted) == 20
    keys = [row.key for heir in heirs for row in waiting(heir)]
    assert len(keys) == len(set(keys)) == 20


@pytest.mark.parametrize(
    ("theirs", "adopts"),
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
@pytest.mark.parametrize("version", [1, 2])
def test_entries_are_sent_to_their_own_organization_only(
    make_outbox: Make,
    shared: sqlite3.Connection,
    tmp_path: Path,
    theirs: Target,
    adopts: bool,
    version: int,
) -> None:
    """Only to the same gateway, organization and environment; where that was not known, only with the same key."""
    heir = make_outbox()
    if version == 1:
        put(shared, theirs, entry())
    else:
        dead = make_outbox(theirs)
        dead.add(entry())
        die(dead)
    assert adopt(heir) == adopts
    assert len(waiting(heir)) == adopts
    assert len(stored(tmp_path / "outbox")) == 1


def test_a_file_learns_its_organization(make_outbox: Make) -> None:
    """Entries stored before any response named the organization belong to that of their key."""
    early = make_outbox(replace(OURS, organization=None))
    early.add(entry())
    early.learn("org-1", "production")
    early.add(entry())
    die(early)
    # Another key of the same organization.
    assert adopt(make_outbox(replace(OURS, fingerprint="0" * 64))) == 2


def test_nothing_is_adopted_while_the_organization_is_unknown(make_outbox: Make) -> None:
    """Without a response of the gateway, entries of other processes stay where they are."""
    dead, heir = make_outbox(), make_outbox()
    dead.add(entry())
    die(dead)
    assert adopt_files(heir, lambda: False) is None
    assert adopt(heir) == 1


def test_many_entries_are_adopted_in_several_turns(
    make_outbox: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries of this process do not wait until a large file has been moved."""
    monkeypatch.setattr(recovery, "_CHUNK", 2)
    monkeypatch.setattr(recovery, "_MOST_AT_ONCE", 4)
    dead, heir = make_outbox(), make_outbox()
    entries = [entry() for _ in range(5)]
    for each in entries:
        dead.add(each)
    die(dead)
    assert adopt_files(heir, asked) == (4, False)
    assert adopt_files(heir, asked) == (1, True)
    assert [row.key for row in waiting(heir)] == [each.key for each in entries]


def test_a_process_that_dies_while_it_adopts_loses_nothing(
    make_outbox: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries are stored in the new file, on the disk, before they leave the old one."""
    dead, dying, heir = make_outbox(), make_outbox(), make_outbox()
    dead.add(one := entry())
    die(dead)
    statements: list[str] = []
    dying.check_space()
    dying._do(lambda db: db.set_trace_callback(statements.append))
    take_in = Outbox.take_in

    def killed(outbox: Outbox, entries: Any) -> None:
        take_in(outbox, entries)
        raise KeyboardInterrupt

    monkeypatch.setattr(Outbox, "take_in", killed)
    with pytest.raises(KeyboardInterrupt):
        adopt(dying)
    monkeypatch.undo()
    assert statements.index("PRAGMA synchronous = FULL") < statements.index("BEGIN IMMEDIATE")
    die(dying)
    # Twice under one key, which makes one log entry.
    assert adopt(heir) == 2
    assert {row.key for row in waiting(heir)} == {one.key}


def test_a_file_that_is_being_written_is_adopted_later(make_outbox: Make) -> None:
    dead, heir = make_outbox(), make_outbox()
    dead.add(entry())
    die(dead)
    assert dead.file is not None
    with closing(sqlite3.connect(dead.file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert adopt_files(heir, asked) == (0, False)
        other.execute("ROLLBACK")
    assert adopt_files(heir, asked) == (1, True)


def test_parked_entries_stay_parked(make_outbox: Make) -> None:
    """They are adopted with their reasons, so that files do not accumulate."""
    dead, heir = make_outbox(), make_outbox()
    dead.add(entry())
    dead.settle([], [(row, "404: Agent not found") for row in waiting(dead)])
    die(dead)
    assert adopt(heir) == 1
    assert not heir.waits()
    assert heir._do(lambda db: db.execute("SELECT state, reason FROM entries").fetchall()) == [
        (PARKED, "404: Agent not found")
    ]


def test_parked_entries_of_running_processes_are_retrieved(make_outbox: Make) -> None:
    """Those of the same target, and nothing else of them."""
    alive, foreign, ours = make_outbox(), make_outbox(replace(OURS, organization="org-2")), make_outbox()
    for outbox in (alive, foreign):
        outbox.add(entry("parked"))
        outbox.settle([], [(row, "404") for row in waiting(outbox)])
        outbox.add(entry("waits"))
    ours.check_space()
    retrieve_parked(ours)
    assert ours.unpark() == 1
    assert ['"parked"' in row.body for row in waiting(ours)] == [True]
    assert ['"waits"' in row.body for row in waiting(alive)] == [True]
    assert foreign.unpark() == 1


def test_a_file_that_was_never_completed_is_deleted(make_outbox: Make, tmp_path: Path) -> None:
    """A process was killed between creating the file and its tables."""
    heir = make_outbox()
    heir.add(entry())
    (tmp_path / "outbox" / f"{'a' * 32}.db").touch(mode=0o600)
    assert adopt(heir) == 0
    assert list((tmp_path / "outbox").glob("*.db")) == [heir.file]


@pytest.mark.parametrize("kind", ["damaged", "version", "link"])
@pytest.mark.parametrize("which", ["folder", "shared file of version 0.1"])
def test_a_file_of_something_else_stays(
    make_outbox: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, which: str
) -> None:
    """It is neither adopted nor moved; an error says once what to do, and other entries are stored and adopted."""
    dead, heir = make_outbox(), make_outbox()
    dead.add(entry())
    die(dead)
    heir.add(entry())
    file = tmp_path / "outbox" / "other.db" if which == "folder" else tmp_path / "outbox.db"
    if kind == "damaged":
        file.write_bytes(b"important" * 1000)
    elif kind == "link":
        (tmp_path / "target").write_bytes(b"important" * 1000)
        file.symlink_to(tmp_path / "target")
    else:
        with closing(sqlite3.connect(file)) as later:
            later.execute("PRAGMA user_version = 9")
    before = file.read_bytes()
    for adopted in (1, 0):
        assert adopt(heir) == adopted
    assert file.read_bytes() == before
    [told] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert {
        "damaged": "move the file to another folder",
        "version": "another version of toolgate (file format 9)",
        "link": "not a regular file of this user",
    }[kind] in told.getMessage()
    assert len(waiting(heir)) == 2


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_not_adopted(make_outbox: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Another user of a shared folder could otherwise have entries sent with this user's key."""
    theirs, heir = make_outbox(), make_outbox()
    theirs.add(entry())
    die(theirs)
    assert theirs.file is not None
    os.chown(theirs.file, 12345, 12345)
    assert adopt(heir) == 0
    assert "not a regular file of this user" in caplog.text


def put(
    shared: sqlite3.Connection, target: Target, one: Entry, *, owner: str = "dead", state: int = READY
) -> None:
    """Store an entry as version 0.1 does."""
    shared.execute("INSERT OR IGNORE INTO owners (token, pid) VALUES (?, 1)", (owner,))
    [(number,)] = shared.execute("SELECT id FROM owners WHERE token = ?", (owner,)).fetchall()
    cursor = shared.execute(
        "INSERT INTO targets (url, fingerprint, environment, organization) VALUES (?, ?, ?, ?)",
        (target.url, target.fingerprint, target.environment, target.organization),
    )
    reason = "404: Agent not found" if state == PARKED else None
    shared.execute(
        "INSERT INTO entries (key, owner, target, state, bytes, body, reason) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            one.key,
            number,
            cursor.lastrowid,
            state,
            len(entry_text(one.body, one.key)),
            entry_text(one.body, one.key),
            reason,
        ),
    )


def test_the_shared_file_of_version_1_is_converted(
    make_outbox: Make, shared: sqlite3.Connection, tmp_path: Path
) -> None:
    """What ended processes left is sent, what running processes of that version have stays theirs."""
    for owner in ("dead", "alive"):
        for state in (INTENT, READY, PARKED):
            put(shared, OURS, entry(f"{owner}.{state}"), owner=owner, state=state)
    lock = FileLock(tmp_path / "outbox.db-owners" / "alive.lock")
    heir = make_outbox()
    assert adopt(heir) == 4
    assert sorted(stored_actions(heir)) == [
        ("alive.2", PARKED, "404: Agent not found"),
        ("dead.0", READY, None),
        ("dead.1", READY, None),
        ("dead.2", PARKED, "404: Agent not found"),
    ]
    assert shared.execute("SELECT state FROM entries ORDER BY id").fetchall() == [(INTENT,), (READY,)]
    lock.release()
    assert adopt(heir) == 2
    assert shared.execute("SELECT count(*) FROM entries").fetchone() == (0,)
    assert adopt(heir) == 0


def stored_actions(outbox: Outbox) -> list[tuple[str, int, str | None]]:
    import json

    rows = outbox._do(lambda db: db.execute("SELECT body, state, reason FROM entries").fetchall())
    return [(json.loads(body)["action"], state, reason) for body, state, reason in rows]


@pytest.mark.skipif(sys.platform == "win32", reason="a file that is open cannot be locked again")
def test_the_shared_file_is_left_alone_while_it_is_written(
    make_outbox: Make, shared: sqlite3.Connection
) -> None:
    """A process of version 0.1 is writing: its file is converted later."""
    put(shared, OURS, entry())
    heir = make_outbox()
    shared.execute("BEGIN IMMEDIATE")
    assert adopt_files(heir, asked) == (0, False)
    shared.execute("ROLLBACK")
    assert adopt(heir) == 1
