"""The options of capture where they are written: at a decoration and at a block."""

from __future__ import annotations

import re
from typing import Any

import pytest

from toolgate import ActionDenied, ConfigurationError, Guard

HELD = {"allowed": False, "requires_approval": True, "reason": "needs a person", "approval_id": "appr-1"}


def never() -> None:
    pytest.fail("the tool ran")


def boom(n: int) -> int:
    raise ValueError(n)


@pytest.mark.parametrize("option", ["amount", "context"])
async def test_what_raises_refuses_before_the_gateway_is_asked(
    guard: Guard, gateway: Any, option: str
) -> None:
    """A function that raises is a clear error, the gateway hears of nothing, and the tool does not run."""
    options: dict[str, Any] = {option: boom}

    @guard.guarded("a.b", **options)
    def tool(n: int) -> None:
        never()

    @guard.guarded("a.b", **options)
    async def atool(n: int) -> None:
        never()

    with pytest.raises(ConfigurationError, match=f"{option}='boom' raised ValueError") as refused:
        tool(1)
    assert isinstance(refused.value.__cause__, ValueError)
    with pytest.raises(ConfigurationError, match=f"{option}='boom' raised ValueError"):
        await atool(1)
    assert gateway.requests == []


async def test_a_decoration_sends_what_is_computed(guard: Guard, gateway: Any) -> None:
    """Amount and context stand beside the arguments; the tool is given its arguments and nothing else."""

    class Shop:
        @guard.guarded("a.b", include={"n"}, amount=lambda n: n * 2, context=lambda body: {"size": len(body)})
        def buy(self, n: int, body: str) -> tuple[int, str]:
            return n, body

    assert Shop().buy(3, "hello") == (3, "hello")
    assert gateway.context["amount"] == 6
    assert gateway.context["size"] == 5
    assert gateway.context["n"] == 3
    assert gateway.context["body"]["bytes"] == 5


async def test_a_block_has_them_too(guard: Guard, gateway: Any) -> None:
    """A block is asked about with its amount computed, and shows what it includes."""
    with guard.action(
        "a.b",
        {"quantity": 3, "price": 5, "note": "IBAN 42", "x": 1},
        include={"quantity", "note"},
        redact=[re.compile("IBAN")],
        amount=lambda quantity, price: quantity * price,
    ) as act:
        act.context["rows"] = 12
    assert gateway.context["amount"] == 15
    assert gateway.context["quantity"] == 3
    assert all(gateway.context[name]["$digest"] for name in ("price", "note", "x"))
    assert gateway.logs[-1]["context"]["rows"]["$digest"]
    block = guard.action("a.b", {"n": 1}, amount="cents")
    with pytest.raises(ConfigurationError, match="the option amount is 'cents'"), block:
        never()


async def test_an_edit_that_is_not_what_would_be_computed_is_refused(guard: Guard, gateway: Any) -> None:
    """An approver who changes an argument has to say the amount that comes of it."""
    ran: list[int] = []

    @guard.guarded("a.b", on_hold="wait", hold_timeout=30, amount=lambda n: n * 2)
    def tool(n: int) -> None:
        ran.append(n)

    gateway.edit(n=4, amount=8)
    tool(3)
    gateway.edit(n=4, amount=6)
    with pytest.raises(ActionDenied, match="'amount' would have a different value than the approved one"):
        tool(3)
    assert ran == [4]


def test_a_pattern_stays_out_of_the_entry_of_an_error(guard: Guard, gateway: Any) -> None:
    """What a pattern finds in a tool's own error is not recorded."""

    @guard.guarded("a.b", redact=[re.compile("cust-[0-9]+")])
    def tool() -> None:
        raise ValueError("no customer cust-4711 here")

    with pytest.raises(ValueError, match="cust-4711"):
        tool()
    assert gateway.logs[-1]["context"]["error"]["message"] == "no customer [redacted] here"
