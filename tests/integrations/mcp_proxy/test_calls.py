"""Every call of a tool behind the proxy is asked about, carried out once, and recorded."""

import asyncio
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_types import ElicitRequestURLParams, ElicitResult
from support.proxies import ERAS, PAGE, Bank, text_of


@pytest.mark.parametrize("era", ERAS)
async def test_calls_are_asked_about_and_recorded(bank: Bank, era: str) -> None:
    """Allowed, blocked, failed and unknown: what the model reads, what ran, and what the log says."""
    bank.permit("look", "burn")
    async with bank.client(mode=era) as client:
        assert client.instructions == "Be careful."
        looked = await client.call_tool("look", {"to": "eve"})
        blocked = await client.call_tool("drop", {"to": "users"})
        burnt = await client.call_tool("burn", {})
        unknown = await client.call_tool("nothing", {})
    assert (text_of(looked), looked.is_error) == ('look {"to": "eve"}', False)
    assert "'bank.drop' is blocked" in text_of(blocked)
    assert (text_of(burnt), burnt.is_error) == ("it does not burn", True)
    assert "'bank' lists no tool called 'nothing'" in text_of(unknown)
    assert all(each.is_error for each in (blocked, unknown))
    assert bank.ran() == [("look", {"to": "eve"}), ("burn", {})]
    assert bank.logged() == [
        ("burn", "failed"),
        ("drop", "denied"),
        ("look", "success"),
        ("nothing", "denied"),
    ]


async def test_frozen_call_is_reported_as_other_denials_are(bank: Bank) -> None:
    bank.permit("look")
    order = {"agent_id": bank.agent_id, "reason": "Refunds were paid twice"}
    freeze_id = bank.owner.http.post("/api/freeze", json=order).json()["id"]
    try:
        async with bank.client() as client:
            frozen = await client.call_tool("look", {"to": "eve"})
    finally:
        assert bank.owner.http.post(f"/api/freeze/{freeze_id}/lift").status_code == 200
    assert frozen.is_error
    assert "'bank.look' is blocked. Calls are frozen: Refunds were paid twice." in text_of(frozen)
    assert bank.ran() == []
    assert bank.logged() == [("look", "denied")]


@pytest.mark.parametrize("era", ERAS)
async def test_a_held_call_is_pointed_to_its_page(bank: Bank, era: str) -> None:
    """Approved there, it runs once; the client's own yes decides nothing."""
    bank.permit("pay", requires_approval=True)
    asked: list[str] = []

    async def user(_: object, question: Any) -> ElicitResult:
        assert isinstance(question, ElicitRequestURLParams)
        asked.append(question.url)
        if len(asked) > 1:
            bank.decide(question.url.rpartition("/")[2])
        return ElicitResult(action="accept")

    options = ("--approval-page", PAGE, "--hold-timeout", "0.1")
    async with bank.client(*options, mode=era, elicitation_callback=user) as client:
        paid = await client.call_tool("pay", {"amount": 40})
    assert text_of(paid) == 'pay {"amount": 40}'
    assert len(asked) == 2
    assert bank.ran() == [("pay", {"amount": 40})]
    assert bank.logged() == [("pay", "pending"), ("pay", "success")]


@pytest.mark.parametrize("era", ERAS)
async def test_a_held_call_that_its_user_declines(bank: Bank, era: str) -> None:
    """The request is withdrawn, and nothing runs."""
    bank.permit("pay", requires_approval=True)

    async def user(_: object, question: Any) -> ElicitResult:
        return ElicitResult(action="decline")

    async with bank.client(mode=era, elicitation_callback=user) as client:
        told = await client.call_tool("pay", {"amount": 40})
    assert "declined the call in the client" in text_of(told)
    assert bank.ran() == []
    assert [each["status"] for each in bank.owner.http.get("/api/approvals").json()] == ["cancelled"]


async def test_a_held_call_waits(bank: Bank) -> None:
    """`--on-hold wait`: until the person has decided, whatever the client can."""
    bank.permit("pay", requires_approval=True)
    async with bank.client("--on-hold", "wait") as client:
        paying = asyncio.create_task(client.call_tool("pay", {"amount": 40}))
        bank.decide(await bank.pending())
        assert text_of(await paying) == 'pay {"amount": 40}'
    assert bank.ran() == [("pay", {"amount": 40})]


async def test_a_held_call_is_told(bank: Bank) -> None:
    """`--on-hold tell`: the model reads what it waits for; once approved, the same call goes through once."""
    bank.permit("pay", requires_approval=True)
    async with bank.client("--on-hold", "tell") as client:
        told = await client.call_tool("pay", {"amount": 40})
        approval_id = await bank.pending()
        assert approval_id in text_of(told)
        bank.decide(approval_id)
        paid = await client.call_tool("pay", {"amount": 40})
        again = await client.call_tool("pay", {"amount": 40})
    assert text_of(paid) == 'pay {"amount": 40}'
    assert "waits for a person" in text_of(again)
    assert bank.ran() == [("pay", {"amount": 40})]


async def test_a_state_sent_twice_runs_nothing_twice(bank: Bank) -> None:
    """The sealed state of a held call that was approved and carried out."""
    bank.permit("pay", requires_approval=True)
    async with bank.client("--approval-page", PAGE, elicitation_callback=nobody) as client:
        held = await client.session.call_tool("pay", {"amount": 40}, allow_input_required=True)
        back = {
            "request_state": held.request_state,
            "input_responses": {"toolgate": ElicitResult(action="accept")},
        }
        bank.decide(await bank.pending())
        paid = await client.session.call_tool("pay", {"amount": 40}, allow_input_required=True, **back)
        twice = await client.session.call_tool("pay", {"amount": 40}, allow_input_required=True, **back)
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await client.session.call_tool("pay", {"amount": 4000}, allow_input_required=True, **back)
    assert text_of(paid) == 'pay {"amount": 40}'
    assert twice.is_error
    assert bank.ran() == [("pay", {"amount": 40})]


async def test_no_call_goes_through_an_outage(bank: Bank) -> None:
    """Nothing runs while no gateway answers; the model reads that, and goes on."""
    bank.permit("look")
    proxy = bank.proxy(env={"TOOLGATE_URL": "http://127.0.0.1:9", "TOOLGATE_TIMEOUT": "0.2"})
    async with Client(proxy.spoken()) as client:
        assert len((await client.list_tools()).tools) == 12
        told = await client.call_tool("look", {})
    assert "did not answer" in text_of(told)
    assert bank.ran() == []


async def test_other_actions_for_tools(bank: Bank) -> None:
    """`--tool-action`; the name is the action's, and the tool stays what it is."""
    bank.owner.permit(bank.agent_id, "stripe.charge")
    async with bank.client("--tool-action", "pay=stripe.charge") as client:
        assert text_of(await client.call_tool("pay", {})) == "pay {}"
    assert bank.logged() == [("charge", "success")]


async def nobody(*_: object) -> ElicitResult:
    raise AssertionError("answered by the test itself")
