"""`toolgate.reason`: the text that approvers read beside a request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolgate
from toolgate import ApprovalPending, ConfigurationError, Guard
from toolgate._identity import MAX_REASON_LENGTH, is_allowed_in_text, sendable_reason
from toolgate.testing import FakeGateway


@pytest.fixture
def held(fake_gateway: FakeGateway) -> FakeGateway:
    fake_gateway.require_approval("db.drop")
    return fake_gateway


@toolgate.guarded("db.drop")
def drop(table: str) -> str:
    return table


def test_calls_inside_the_block_send_the_reason(held: FakeGateway) -> None:
    with toolgate.reason(" the user asked for it "), pytest.raises(ApprovalPending):
        drop("a")
    with pytest.raises(ApprovalPending):
        drop("b")
    assert [one.stated_reason for one in held.checks] == ["the user asked for it", None]
    assert [one.reason for one in held.pending()] == ["the user asked for it", None]


def test_the_innermost_reason_counts(held: FakeGateway) -> None:
    with toolgate.reason("outer"):
        with toolgate.reason("inner"), pytest.raises(ApprovalPending):
            drop("a")
        with pytest.raises(ApprovalPending):
            drop("b")
    assert [one.stated_reason for one in held.checks] == ["inner", "outer"]


def test_tasks_and_threads_inside_the_block_send_it(held: FakeGateway) -> None:
    async def run() -> None:
        with toolgate.reason("why"):
            task = asyncio.create_task(asyncio.to_thread(drop, "a"))
        with pytest.raises(ApprovalPending):
            await task

    asyncio.run(run())
    assert [one.stated_reason for one in held.checks] == ["why"]


def test_check_takes_a_reason(held: FakeGateway) -> None:
    guard = toolgate.default_guard()
    with toolgate.reason("of the block"):
        guard.check("db.drop", {"table": "a"})
        guard.check("db.drop", {"table": "a"}, reason="of the call")
        asyncio.run(guard.acheck("db.drop", {"table": "a"}, reason="of the coroutine"))
    assert [one.stated_reason for one in held.checks] == ["of the block", "of the call", "of the coroutine"]


@pytest.mark.parametrize("text", [None, 7, b"bytes", ["text"]])
def test_another_type_is_refused_without_its_value(text: Any) -> None:
    with (
        pytest.raises(ConfigurationError, match=f"reason is of type {type(text).__name__}"),
        toolgate.reason(text),
    ):
        raise AssertionError("not reached")


def test_secrets_are_masked() -> None:
    assert sendable_reason("deploy with token=abcdefgh12345678 now") == "deploy with token=[redacted] now"
    assert sendable_reason("sk-abcdefghijklmnopqrstuvwx") == "[redacted]"


def test_a_secret_that_is_cut_is_not_sent() -> None:
    for before in ("x" * (MAX_REASON_LENGTH - 12), f"password={'y' * 4000} " * 4 + f"password={'y' * 3930}"):
        for more in range(30):
            text = f"{before}{' ' * more} sk-abcdefghijklmnopqrstuvwx"
            assert "abcd" not in (sendable_reason(text) or "")


@given(st.text())
def test_every_text_is_sent_as_the_gateway_accepts_it(text: str) -> None:
    sent = sendable_reason(text)
    assert sent is None or (0 < len(sent) <= MAX_REASON_LENGTH and all(map(is_allowed_in_text, sent)))
    assert sendable_reason(text * 300) is None or len(sendable_reason(text * 300) or "") <= MAX_REASON_LENGTH


def test_an_embedded_gateway_shows_the_reason() -> None:
    with Guard.embedded(":memory:", agent="bot", require_approval=["db.drop"]) as guard:
        tool = guard.guarded("db.drop")(lambda table: table)
        with toolgate.reason("the \x1b user\u202e asked"), pytest.raises(ApprovalPending):
            tool("a")
        assert [one.reason for one in guard.gateway.pending()] == ["the � user� asked"]
