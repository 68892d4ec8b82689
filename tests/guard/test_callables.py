"""The table of docs/reference/callables.md: each cell is what is seen here, and every row and column is tried."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.every_kind import COUNTED, KINDS

from toolgate import Guard

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "callables.md"
BLOCKED = {"allowed": False, "requires_approval": False, "reason": "no permission", "approval_id": None}
HELD = {"allowed": False, "requires_approval": True, "reason": "needs a person", "approval_id": "appr-1"}
# What the gateway answers to checks.
COLUMNS: dict[str, list[Any]] = {
    "allowed": [],
    "blocked": [BLOCKED],
    "held, `raise`": [HELD],
    "held, `wait`": [HELD],
    "tool error": [],
    "outage": [httpx.ConnectError("refused")] * 20,
    "cancellation": [],
}
REASONS = {"denied": "no permission", "pending": "needs a person"}
TROUBLE = OSError("the disk is full")


def table() -> tuple[list[str], dict[str, list[str]]]:
    """The columns and rows of the page's first table."""
    lines = itertools.dropwhile(lambda line: not line.startswith("|"), PAGE.read_text().splitlines())
    block = itertools.takewhile(lambda line: line.startswith("|"), lines)
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block]
    return head[1:], {row[0]: row[1:] for row in rows}


def test_the_table_and_the_test_are_of_the_same_kinds_and_cases() -> None:
    """The page has every row and column that is tried here, and no other."""
    columns, rows = table()
    assert columns == list(COLUMNS)
    assert list(rows) == list(KINDS)


class Tool:
    """What the tools do, and what is seen of it."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.runs = 0
        self.inside = asyncio.Event()

    def body(self) -> str:
        self.runs += 1
        if self.column == "tool error":
            raise TROUBLE
        if self.column == "cancellation":
            raise KeyboardInterrupt
        return "value"

    async def abody(self) -> str:
        if self.column != "cancellation":
            return self.body()
        self.runs += 1
        self.inside.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody cancelled")


async def cancelled(use: Callable[[], Any], tool: Tool) -> Any:
    """Use the tool in a task, and cancel that once the tool runs."""
    task = asyncio.ensure_future(use())
    await tool.inside.wait()
    task.cancel()
    return await task


async def used(kind: str, twin: str, guard_it: Any, tool: Tool) -> str:
    """What the caller gets, in the words of the table."""
    try:
        if twin == "sync":
            value = KINDS[kind][0](guard_it, tool.body)()
        else:
            use = KINDS[kind][1](guard_it, tool.abody)
            value = await (cancelled(use, tool) if tool.column == "cancellation" else use())
    except (KeyboardInterrupt, asyncio.CancelledError):
        return "the cancellation"
    except Exception as error:
        return "the very error" if error is TROUBLE else f"`{type(error).__name__}`"
    return str(value)


def expected(kind: str, twin: str, column: str, status: str) -> dict[str, Any]:
    """The whole context of an entry, but for how long it took."""
    if status in REASONS:
        return {"x": 1, "reason": REASONS[status]}
    context: dict[str, Any] = {"x": 1}
    if status == "failed":
        cancels = {"type": "KeyboardInterrupt" if twin == "sync" else "CancelledError", "message": ""}
        trouble = {"type": "OSError", "message": "the disk is full"}
        context["error"] = trouble if column == "tool error" else cancels
    if (kind, twin) in COUNTED:
        entered = status == "success" or kind.startswith("context")
        context["items"] = int(entered)
    return context


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("kind", KINDS)
async def test_every_cell(kind: str, twin: str, column: str, make_guard: Any, gateway: Any) -> None:
    """What the caller gets, whether the tool ran and the entries are those of the page, for both twins."""
    gateway.check = COLUMNS[column][:]
    guard: Guard = make_guard()
    tool = Tool(column)
    guard_it = guard.guarded("a.b", on_hold="wait" if column == "held, `wait`" else "raise")
    got = await used(kind, twin, guard_it, tool)
    assert await guard.aflush()
    statuses = [each["status"] for each in gateway.logs]
    ran = "ran" if tool.runs else "not run"
    seen = f"{got}; {ran}; {', '.join(f'`{each}`' for each in statuses) or 'no entry'}"
    columns, rows = table()
    assert seen == rows[kind][columns.index(column)]
    assert tool.runs <= 1
    for entry in gateway.logs:
        took = entry["context"].pop("duration_ms", None)
        assert (took is not None) == (entry["status"] in {"success", "failed"})
        assert took is None or took >= 0
        assert entry["context"] == expected(kind, twin, column, entry["status"])
        assert (entry["action"], entry["agent_id"]) == ("a.b", "agent-1")
        assert entry.get("approval_id") == ("appr-1" if column.startswith("held") else None)
    assert {str(check["context"]) for check in gateway.checks} == {"{'x': 1}"}
