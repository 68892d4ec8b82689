"""Seeded manipulations of a database: each one is found by an auditor who has seen an earlier checkpoint."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import SecretStr
from support.gateway import SECRET, LiveGateway, Owner
from support.logged_work import work
from support.verified_log import verify

from toolgate_cli.log.verification.export import verify_export
from toolgate_cli.log.verification.state import State
from toolgate_service.context import AppContext
from toolgate_service.core.ids import new_id
from toolgate_service.core.settings import Settings
from toolgate_service.transparency import merkle
from toolgate_service.transparency.export import export_log
from toolgate_service.transparency.leaves import pack, unpack
from toolgate_service.transparency.note import Checkpoint, Signer
from toolgate_service.transparency.sealer import Sealer

pytestmark = pytest.mark.sqlite_only("the manipulations change a file; the rows are the same on PostgreSQL")

#: columns of an approval request that its leaves do not describe yet, by its state
CHANGEABLE = {
    "approved": frozenset({"expires_at", "grant_id"}),
    "pending": frozenset(
        {
            *("expires_at", "approvers", "makers", "required_approvals", "separation_of_duties", "rule_id"),
            *("max_amount", "amount_required"),
        }
    ),
}
#: tables, and their columns that leaves do not describe
TABLES: Mapping[str, frozenset[str]] = {
    "log_entries": frozenset(),
    "decisions": frozenset(),
    "approvals": frozenset({"digest", "last_asked_at", "waiting_until", "remind_at", "reminded_at"}),
    "approval_votes": frozenset(),
    "audit_entries": frozenset(),
    "policy_revisions": frozenset(),
}
#: columns that decide to which log a row belongs: a row of another tenant is missing in this one
TENANT = ("organization_id", "environment")


class Audited:
    """Database of a stopped gateway, the checkpoints that the auditor has seen, and an earlier one of the gateway."""

    def __init__(self, folder: Path) -> None:
        self.path, self._copy = folder / "gateway.db", folder / "copy.db"
        self.seen, self._state = folder / "seen.json", folder / "state.json"
        with LiveGateway(folder) as gateway, Owner(gateway.url) as owner:
            self.organization = str(owner.user["organization_id"])
            work(owner)
            assert verify(owner, State(self.seen)).findings == []
            self.early = owner.http.get("/api/transparency").json()
            work(owner)
            assert verify(owner, State(self.seen)).findings == []
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def verify(self, manipulate: "Manipulation", seed: int) -> set[str]:
        """Return the codes of the findings in the export of a copy that was manipulated."""
        shutil.copy(self.path, self._copy)
        shutil.copy(self.seen, self._state)
        with closing(sqlite3.connect(self._copy, isolation_level=None)) as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute("PRAGMA ignore_check_constraints = ON")
            connection.row_factory = sqlite3.Row
            manipulate(connection, self, Random(seed))
        lines = asyncio.run(self._export())
        return verify_export(lines, state=State(self._state)).codes.keys() - _GAPS

    async def _export(self) -> list[bytes]:
        settings = Settings(database_url=f"sqlite:///{self._copy}", secret=SecretStr(SECRET))
        context = AppContext(settings)
        await context.database.start(migrate=False)
        try:
            sealer, parts = Sealer.of(context.database, settings, context.vault, None), []
            # The gateway cannot read some manipulated values, for example an amount without digits. The response ends
            # there, and the auditor has only its beginning.
            with suppress(ArithmeticError, ValueError):
                async for part in export_log(context, sealer, self.organization, "production"):
                    parts.append(part)
        finally:
            await context.database.close()
        return b"".join(parts).splitlines(keepends=True)


Manipulation = Callable[[sqlite3.Connection, Audited, Random], None]
_GAPS = frozenset({"allowed_without_entry", "entry_without_decision", "consumed_without_decision"})


def pick_row(database: sqlite3.Connection, audited: Audited, random: Random) -> tuple[str, dict[str, Any]]:
    """Return a table and one of its rows in the production environment."""
    table = random.choice(sorted(TABLES))
    query = f"SELECT * FROM {table} WHERE organization_id = ? AND coalesce(environment, 'production') = 'production'"
    return table, dict(random.choice(database.execute(query, (audited.organization,)).fetchall()))


def same_row(row: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return the condition for a row, and its values."""
    return " AND ".join(f"{name} IS ?" for name in row), list(row.values())


def edit_column(database: sqlite3.Connection, audited: Audited, random: Random) -> None:
    table, row = pick_row(database, audited, random)
    changeable = CHANGEABLE.get(row.get("status", ""), frozenset()) if table == "approvals" else frozenset()
    name = random.choice(sorted(row.keys() - TABLES[table] - changeable - {*TENANT}))
    value = row[name]
    # Columns with times contain nothing else: the database cannot be read otherwise.
    is_time = name.endswith("_at")
    others: list[Any] = ["2026-01-01T00:00:00.000000Z", *(() if is_time else ("forged", 7, new_id()))]
    columns = database.execute(f"PRAGMA table_info({table})").fetchall()
    if not next(column["notnull"] for column in columns if column["name"] == name):
        others.append(None)
    if isinstance(value, str) and value and not is_time:
        others += [value[:-1], f"{value} "]
    condition, values = same_row(row)
    other = random.choice([one for one in others if one != value])
    database.execute(f"UPDATE {table} SET {name} = ? WHERE {condition}", [other, *values])


def delete_row(database: sqlite3.Connection, audited: Audited, random: Random) -> None:
    table, row = pick_row(database, audited, random)
    condition, values = same_row(row)
    database.execute(f"DELETE FROM {table} WHERE {condition}", values)


def insert_row(database: sqlite3.Connection, audited: Audited, random: Random) -> None:
    table, row = pick_row(database, audited, random)
    if table == "approval_votes":
        row["user_id"] = new_id()
    else:
        row["id"] = new_id()
    if table == "policy_revisions":
        row["number"] += 1_000
    if table == "approvals":
        row["call_id"] = new_id()
    if random.random() < 0.5:
        row["salt"] = None
        row["created_at"] = "2020-01-01T00:00:00.000000Z"
    names = ", ".join(row)
    database.execute(
        f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", list(row.values())
    )


def swap_rows(database: sqlite3.Connection, audited: Audited, random: Random) -> None:
    """Exchange the ids of two rows."""
    rows = database.execute(
        "SELECT id FROM log_entries WHERE organization_id = ? AND environment = 'production'",
        (audited.organization,),
    )
    one, other = random.sample([row["id"] for row in rows.fetchall()], 2)
    for old, new in ((one, "swapped"), (other, one), ("swapped", other)):
        database.execute("UPDATE log_entries SET id = ? WHERE id = ?", (new, old))


def move_row(database: sqlite3.Connection, audited: Audited, random: Random) -> None:
    """Move a row to the test environment."""
    table, row = pick_row(database, audited, random)
    condition, values = same_row(row)
    database.execute(f"UPDATE {table} SET environment = 'test' WHERE {condition}", values)


def read_leaves(database: sqlite3.Connection, audited: Audited) -> list[bytes]:
    chunks = database.execute(
        "SELECT data FROM transparency_chunks JOIN transparency_leaves USING (sequence, organization_id, environment) "
        "WHERE organization_id = ? AND environment = 'production' ORDER BY first_index",
        (audited.organization,),
    )
    return [leaf for chunk in chunks.fetchall() for leaf in unpack(chunk["data"])]


def store_leaves(database: sqlite3.Connection, audited: Audited, leaves: list[bytes]) -> None:
    """Replace all leaves of the log."""
    for table in ("transparency_chunks", "transparency_leaves"):
        database.execute(
            f"DELETE FROM {table} WHERE organization_id = ? AND environment = 'production'",
            (audited.organization,),
        )
    moment = "2026-11-28T00:00:00.000000Z"
    for index, leaf in enumerate(leaves):
        inserted = database.execute(
            "INSERT INTO transparency_chunks (organization_id, environment, first_index, number, first_at, last_at) "
            "VALUES (?, 'production', ?, 1, ?, ?)",
            (audited.organization, index, moment, moment),
        )
        database.execute(
            "INSERT INTO transparency_leaves (sequence, organization_id, environment, data) "
            "VALUES (?, ?, 'production', ?)",
            (inserted.lastrowid, audited.organization, pack([leaf])),
        )


def change_leaves(leaves: list[bytes], random: Random) -> list[bytes]:
    """Return leaves of which one is edited, dropped, inserted, repeated or moved, or of which the last ones are cut."""
    index = random.randrange(1, len(leaves))
    edited = (
        leaves[index].replace(b'"v":1', b'"v":2') if random.random() < 0.3 else _edit(leaves[index], random)
    )
    moved = [*leaves[:index], *leaves[index + 1 :]]
    moved.insert(random.choice([one for one in range(1, len(leaves)) if one != index]), leaves[index])
    return random.choice(
        [
            [*leaves[:index], edited, *leaves[index + 1 :]],
            [*leaves[:index], *leaves[index + 1 :]],
            [*leaves[:index], edited, *leaves[index:]],
            # A repetition of the last leaf would come after the tree, whose leaves would be unchanged.
            [*leaves[:index], leaves[index - 1], *leaves[index:]],
            moved,
            leaves[:index],
        ]
    )


def _edit(leaf: bytes, random: Random) -> bytes:
    place = random.randrange(len(leaf))
    return leaf[:place] + bytes([leaf[place] ^ 1]) + leaf[place + 1 :]


def edit_leaves(database: sqlite3.Connection, audited: Audited, random: Random) -> None:
    store_leaves(database, audited, change_leaves(read_leaves(database, audited), random))


def sign(
    database: sqlite3.Connection, audited: Audited, leaves: list[bytes], signer: Signer | None = None
) -> None:
    """Store leaves and a checkpoint of them that the gateway's own key signs, or another key."""
    settings = Settings(database_url="sqlite:///unused.db", secret=SecretStr(SECRET))
    context = AppContext(settings)
    [log] = database.execute(
        "SELECT * FROM transparency_logs WHERE organization_id = ? AND environment = 'production'",
        (audited.organization,),
    ).fetchall()
    if signer is None:
        seed = context.vault.open(
            log["ciphertext"], table="TransparencyLog", row=log["id"], organization=audited.organization
        )
        assert seed is not None
        signer = Signer(log["origin"], bytes.fromhex(seed))
    tiles = merkle.append(0, {}, [merkle.hash_leaf(leaf) for leaf in leaves])
    root = merkle.root(len(leaves), tiles.__getitem__)
    database.execute(
        "UPDATE transparency_logs SET size = ?, root = ?, checkpoint = ?, vkey = ? WHERE id = ?",
        (
            len(leaves),
            root,
            signer.sign(Checkpoint(log["origin"], len(leaves), root)),
            signer.vkey,
            log["id"],
        ),
    )
    store_leaves(database, audited, leaves)


def fork(database: sqlite3.Connection, audited: Audited, random: Random) -> None:
    """Sign a tree with other leaves, as an operator with the key can."""
    leaves = read_leaves(database, audited)
    changed = change_leaves(leaves, random)
    sign(database, audited, changed if changed != leaves else leaves[:-1])


def swap_keys(database: sqlite3.Connection, audited: Audited, random: Random) -> None:
    """Sign the unchanged leaves with another key."""
    [log] = database.execute(
        "SELECT origin FROM transparency_logs WHERE organization_id = ? AND environment = 'production'",
        (audited.organization,),
    ).fetchall()
    sign(database, audited, read_leaves(database, audited), Signer(log["origin"], random.randbytes(32)))


def replay_checkpoint(database: sqlite3.Connection, audited: Audited, random: Random) -> None:
    """Return to a checkpoint that was published before, with or without the leaves after it."""
    database.execute(
        "UPDATE transparency_logs SET size = ?, checkpoint = ? WHERE organization_id = ? AND environment = 'production'",
        (audited.early["size"], audited.early["checkpoint"], audited.organization),
    )
    if random.random() < 0.5:
        store_leaves(database, audited, read_leaves(database, audited)[: audited.early["size"]])


def edit_checkpoint(database: sqlite3.Connection, audited: Audited, random: Random) -> None:
    [log] = database.execute(
        "SELECT checkpoint FROM transparency_logs WHERE organization_id = ? AND environment = 'production'",
        (audited.organization,),
    ).fetchall()
    note: str = log["checkpoint"]
    place = random.randrange(len(note) - 2)
    other = "A" if note[place] != "A" else "B"
    database.execute(
        "UPDATE transparency_logs SET checkpoint = ? WHERE organization_id = ? AND environment = 'production'",
        (note[:place] + other + note[place + 1 :], audited.organization),
    )


MANIPULATIONS: tuple[Manipulation, ...] = (
    *(edit_column,) * 6,
    *(delete_row,) * 2,
    *(insert_row,) * 2,
    swap_rows,
    move_row,
    *(edit_leaves,) * 2,
    *(fork,) * 2,
    swap_keys,
    replay_checkpoint,
    edit_checkpoint,
)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """A database with rows of every kind."""
    return Audited(tmp_path_factory.mktemp("audited"))


def test_an_unchanged_database_has_no_findings(audited: Audited) -> None:
    assert not audited.verify(lambda *_: None, 0)


@pytest.mark.parametrize(
    "number", [pytest.param(38, id="short"), pytest.param(10_000, marks=pytest.mark.slow, id="long")]
)
def test_manipulations_are_found(audited: Audited, number: int) -> None:
    missed = [
        f"{manipulation.__name__} with the seed {seed}"
        for seed in range(number)
        for manipulation in [MANIPULATIONS[seed % len(MANIPULATIONS)]]
        if not audited.verify(manipulation, seed)
    ]
    assert missed == []
