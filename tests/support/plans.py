"""How a database would answer a statement: what it reads by an index, what it reads whole, and what it sorts.

Plans are made for values that are not known. SQLite knows nothing of what its tables hold, and may be empty. PostgreSQL
should be crowded, and its cost settings are so high for reading a whole table that it does so only without an index. It plans
each statement twice: sorting costs as much in one of the plans.
"""

import json
import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import asyncpg

from support.databases import finished
from toolgate_service.db.sqlite import sqlite_path

#: what says whose or which, compared with one value
WHOSE = re.compile(r"\b(\w*id|digest|slug|email|subject|job|sequence|\w+_hash)\b(\)::text)? *=")

#: what asks for nothing
SILENT = re.compile(
    r"\s*(;|PRAGMA|BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|SET|SHOW|CREATE|ALTER|DROP|LISTEN|LOCK|select pg_catalog)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is wrong with a statement's plan.

    Attributes:
        whole: the tables of which every row is read, or every row of an index.
        at_large: the tables of which rows are found, but neither by whose they are nor by what is one thing's alone.
        sorts: whether rows are put in order that no index has them in.
        shown: the plan, to be read by people.
    """

    whole: frozenset[str]
    at_large: frozenset[str]
    sorts: bool
    shown: str


def plans_of(url: str, statements: Sequence[str]) -> Mapping[str, Plan]:
    """Return the plan of every statement that asks for something, on a migrated database."""
    asked = [one for one in statements if not SILENT.match(one)]
    if url.startswith("sqlite"):
        return dict(_of_sqlite(url, asked))
    return finished(_of_postgres(url, asked))


def _of_sqlite(url: str, statements: Sequence[str]) -> Iterator[tuple[str, Plan]]:
    with closing(sqlite3.connect(sqlite_path(url))) as connection:
        tables = {
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        for statement in statements:
            rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", _unknown(statement)).fetchall()
            details = [row[3] for row in rows]
            scanned = [match[1] for detail in details if (match := re.match(r"SCAN (\w+)", detail))]
            searched = [
                match[1]
                for detail in details
                if (match := re.match(r"SEARCH (\w+)", detail)) and not WHOSE.search(detail)
            ]
            whole, at_large = (
                {table for name in names for table in _table(name, statement, tables)}
                for names in (scanned, searched)
            )
            automatic = {"an automatic index"} if any("AUTOMATIC" in detail for detail in details) else set()
            sorts = any(re.match(r"USE TEMP B-TREE FOR .*ORDER BY", detail) for detail in details)
            yield (
                statement,
                Plan(frozenset(whole | automatic), frozenset(at_large), sorts, "\n".join(details)),
            )


def _unknown(statement: str) -> Any:
    names = re.findall(r"(?<![:\w]):([a-z]\w*)", statement)
    if names and "?" not in statement:
        return dict.fromkeys(names)
    numbered = re.findall(r"\?(\d+)", statement)
    return [None] * (max(map(int, numbered)) if numbered else statement.count("?"))


def _table(name: str, statement: str, tables: Collection[str]) -> Iterator[str]:
    """Yield the table that a name in a plan stands for; none for what the statement itself makes."""
    if name in tables:
        yield name
    else:
        yield from set(re.findall(rf"\b(\w+) (?:AS )?{name}\b", statement)) & set(tables)


async def _of_postgres(url: str, statements: Sequence[str]) -> Mapping[str, Plan]:
    connection = await asyncpg.connect(url, server_settings=_RELUCTANT)
    try:
        first = dict(await connection.fetch(_FIRST_COLUMNS))
        parents = dict(await connection.fetch(_PARENTS))
        return {
            statement: await _explained(connection, statement, first, parents) for statement in statements
        }
    finally:
        await connection.close()


async def _explained(
    connection: Any, statement: str, first: Mapping[str, str], parents: Mapping[str, str]
) -> Plan:
    unsorted = await _plan(connection, statement)
    # To avoid the sort of a few rows, PostgreSQL would read a whole index.
    await connection.execute("SET enable_sort = on")
    found = await _plan(connection, statement)
    await connection.execute("SET enable_sort = off")
    for node in found:
        if "Relation Name" in node:
            node["Relation Name"] = parents.get(node["Relation Name"], node["Relation Name"])
    whole = {node["Relation Name"] for node in found if _reads_all(node, first)}
    sorts = any(node["Node Type"] in {"Sort", "Incremental Sort"} for node in unsorted)
    at_large = {
        node["Relation Name"]
        for node in found
        if "Index Cond" in node and not WHOSE.search(node["Index Cond"])
    }
    return Plan(frozenset(whole), frozenset(at_large), sorts, "\n".join(map(_shown, found)))


async def _plan(connection: Any, statement: str) -> list[dict[str, Any]]:
    # The plan of a prepared statement is kept, whatever is set later.
    await connection.execute(f"PREPARE asked AS {statement}")
    values = len(set(re.findall(r"\$(\d+)", statement)))
    given = f"({', '.join(['NULL'] * values)})" if values else ""
    told = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE asked{given}")
    await connection.execute("DEALLOCATE asked")
    return list(nodes(json.loads(told)[0].get("Plan", {})))


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a node of PostgreSQL's plan and all below it."""
    if node:
        yield node
    for inner in node.get("Plans", ()):
        yield from nodes(inner)


def _reads_all(node: Mapping[str, Any], first: Mapping[str, str]) -> bool:
    if node["Node Type"] not in {"Index Scan", "Index Only Scan"}:
        return bool(node["Node Type"] == "Seq Scan")
    # What is compared with a later column alone is found by reading the whole index.
    return re.search(rf"\b{first[node['Index Name']]}\b", node.get("Index Cond", "")) is None


def _shown(node: Mapping[str, Any]) -> str:
    said = ("Node Type", "Relation Name", "Index Name", "Index Cond", "Filter", "Sort Key")
    return ", ".join(str(node[name]) for name in said if name in node)


_FIRST_COLUMNS = """
SELECT c.relname, pg_get_indexdef(i.indexrelid, 1, true) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
"""
_PARENTS = "SELECT inhrelid::regclass::text, inhparent::regclass::text FROM pg_inherits"
_RELUCTANT = {
    "enable_seqscan": "off",
    "enable_sort": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    # Of a table in months every month is looked at: no moment, which is asked for here, leaves none.
    "enable_partition_pruning": "off",
    "jit": "off",
}
