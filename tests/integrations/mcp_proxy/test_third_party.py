"""Servers that other people wrote, with the handshake of the protocol's older versions: nothing on them changes."""

import json
from typing import Any

import pytest
from mcp_types import TextContent
from support.proxies import ERAS, Bank, text_of
from support.third_party import clock, everything


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_from_npm(bank: Bank, era: str) -> None:
    """`server-everything`: tools, structured results, progress, prompts and resources, and what is not granted."""
    bank.permit("echo", "get-structured-content", "trigger-long-running-operation")
    bank.permit("get-sum", requires_approval=True)
    progress: list[float] = []

    async def at(done: float, _total: float | None, _message: str | None) -> None:
        progress.append(done)

    async with bank.client("--on-hold", "wait", "--only-granted", "--", *everything(), mode=era) as client:
        shown = [each.name for each in (await client.list_tools()).tools]
        said = await client.call_tool("echo", {"message": "hello"})
        weather = await client.call_tool("get-structured-content", {"location": "New York"})
        blocked = await client.call_tool("get-env", {})
        await client.call_tool(
            "trigger-long-running-operation", {"duration": 0.05, "steps": 2}, progress_callback=at
        )
        prompts = (await client.list_prompts()).prompts
        resources = (await client.list_resources()).resources
        wrong = await client.call_tool("echo", {})
    assert shown == ["echo", "get-structured-content", "get-sum", "trigger-long-running-operation"]
    assert text_of(said) == "Echo: hello"
    assert set(weather.structured_content) == {"temperature", "conditions", "humidity"}
    assert "'bank.get-env' is blocked" in text_of(blocked)
    assert progress == [1, 2]
    assert prompts
    assert resources
    assert wrong.is_error
    assert bank.logged() == [
        ("echo", "failed"),
        ("echo", "success"),
        ("get-env", "denied"),
        ("get-structured-content", "success"),
        ("trigger-long-running-operation", "success"),
    ]


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_from_pypi(bank: Bank, era: str) -> None:
    """`mcp-server-time`, on `mcp` 1.x: allowed, blocked and failed."""
    bank.permit("get_current_time")
    async with bank.client("--", *clock(), mode=era) as client:
        shown = [each.name for each in (await client.list_tools()).tools]
        now: Any = await client.call_tool("get_current_time", {"timezone": "UTC"})
        wrong = await client.call_tool("get_current_time", {"timezone": "Nowhere/Land"})
        blocked = await client.call_tool(
            "convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "UTC"}
        )
    assert shown == ["get_current_time", "convert_time"]
    assert json.loads(text_of(now))["timezone"] == "UTC"
    assert wrong.is_error
    assert "'bank.convert_time' is blocked" in text_of(blocked)
    assert all(isinstance(each, TextContent) for each in now.content)
    assert bank.logged() == [
        ("convert_time", "denied"),
        ("get_current_time", "failed"),
        ("get_current_time", "success"),
    ]
