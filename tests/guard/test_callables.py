"""The tables of docs/reference/callables.md: every kind has each outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from support.every_kind import COUNTED, KINDS
from support.readme import section

from toolgate import Guard

BLOCKED = {"allowed": False, "requires_approval": False, "reason": "no permission", "approval_id": None}
HELD = {"allowed": False, "requires_approval": True, "reason": "needs a person", "approval_id": "appr-1"}
# What the gateway answers to checks.
COLUMNS: dict[str, list[Any]] = {
    "allowed": [],
    "denied": [BLOCKED],
    "approval required, `raise`": [HELD],
    "approval required, `wait`": [HELD],
    "tool error": [],
    "outage": [httpx.ConnectError("refused")] * 20,
    "cancellation": [],
}
REASONS = {"denied": "no permission", "pending": "needs a person"}
TROUBLE = OSError("the disk is full")


def read_table(heading: str) -> dict[str, str]:
    """Return the rows of the table below a heading: the first cell, and the others joined."""
    lines = [
        line for line in section("docs/reference/callables.md", heading).splitlines() if line.startswith("|")
    ]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return {first: "; ".join(others) for first, *others in rows}


def test_page_has_every_kind_and_case() -> None:
    assert list(read_table("Outcomes")) == list(COLUMNS)
    assert list(read_table("Kinds")) == list(KINDS)


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
        return "the tool's exception" if error is TROUBLE else f"`{type(error).__name__}`"
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
    # The retries of an outage last until the timeout.
    guard: Guard = make_guard(timeout=1) if column == "outage" else make_guard()
    tool = Tool(column)
    guard_it = guard.guarded("a.b", on_hold="wait" if column == "approval required, `wait`" else "raise")
    got = await used(kind, twin, guard_it, tool)
    assert await guard.aflush()
    statuses = [each["status"] for each in gateway.logs]
    ran = "ran" if tool.runs else "not run"
    seen = f"{got}; {ran}; {', '.join(f'`{each}`' for each in statuses) or 'no entry'}"
    assert seen == read_table("Outcomes")[column]
    assert tool.runs <= 1
    for entry in gateway.logs:
        took = entry["context"].pop("duration_ms", None)
        assert (took is not None) == (entry["status"] in {"success", "failed"})
        assert took is None or took >= 0
        assert entry["context"] == expected(kind, twin, column, entry["status"])
        assert (entry["action"], entry["agent_id"]) == ("a.b", "agent-1")
        assert entry.get("approval_id") == ("appr-1" if column.startswith("approval") else None)
    assert {str(check["context"]) for check in gateway.checks} == {"{'x': 1}"}
