"""Approvals of tool calls that are checked by AuthZEN mappings, in HTTP mode."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from mcp_types import ElicitResult
from support.http_proxies import OPEN_METHODS, HttpProxy, declared, token
from support.proxies import Bank, text_of

from .test_authorization import COPY, CUSTOMER, FILES, Serve, serve

__all__ = ["serve"]


def pending(bank: Bank) -> list[dict[str, Any]]:
    """Return the pending approval requests, oldest first."""
    found: list[dict[str, Any]] = bank.owner.http.get("/api/approvals", params={"status": "pending"}).json()
    return sorted(found, key=lambda each: each["id"])


def approve(bank: Bank, request: dict[str, Any], context: object = None) -> None:
    body = {} if context is None else {"context": context}
    answer = bank.owner.http.post(f"/api/approvals/{request['id']}/approve", json=body)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_call_pauses_for_the_approver(bank: Bank, serve: Serve, mode: str) -> None:
    bank.permit("pay", requires_approval=True)
    asked: list[str] = []

    async def user(_: object, question: Any) -> ElicitResult:
        asked.append(question.message)
        [request] = pending(bank)
        approve(bank, request)
        return ElicitResult(action="accept")

    async with serve().client(mode=mode, elicitation_callback=user) as client:
        paid = await client.call_tool("pay", {"amount": 5})
    assert text_of(paid) == 'pay {"amount": 5}'
    assert len(asked) == 1
    assert bank.ran() == [("pay", {"amount": 5})]


async def test_approval_covers_only_the_user_and_the_arguments(bank: Bank, serve: Serve) -> None:
    bank.permit("pay", requires_approval=True)
    proxy = serve()
    async with proxy.client() as alice, proxy.client(token(sub="bob")) as bob:
        assert "waits for a person's approval" in text_of(await alice.call_tool("pay", {"amount": 5}))
        [request] = pending(bank)
        assert request["context"]["subject"] == {"type": "identity", "id": "alice"}
        assert request["context"]["context"]["arguments"] == {"amount": 5}
        approve(bank, request)
        assert (await bob.call_tool("pay", {"amount": 5})).is_error
        assert (await alice.call_tool("pay", {"amount": 6})).is_error
        assert not (await alice.call_tool("pay", {"amount": 5})).is_error
    assert bank.ran() == [("pay", {"amount": 5})]


async def test_declined_call_is_cancelled(bank: Bank, serve: Serve) -> None:
    bank.permit("object.read", requires_approval=True)
    bank.permit("object.write", requires_approval=True)
    bank.tells(declared("copy", COPY))

    async def user(_: object, question: Any) -> ElicitResult:
        return ElicitResult(action="decline")

    async with serve().client(elicitation_callback=user) as client:
        assert "declined" in text_of(await client.call_tool("copy", FILES))
    assert pending(bank) == []
    assert bank.ran() == []


def editor(bank: Bank, change: Callable[[dict[str, Any]], None]) -> Any:
    """Return the user of a client, while whose question an approver approves the request with an edit."""

    async def user(_: object, question: Any) -> ElicitResult:
        [request] = pending(bank)
        edited = copy.deepcopy(request["context"])
        change(edited)
        approve(bank, request, edited)
        return ElicitResult(action="accept")

    return user


async def test_edited_arguments_reach_the_tool(bank: Bank, serve: Serve) -> None:
    bank.permit("look", requires_approval=True)

    def change(context: dict[str, Any]) -> None:
        context["context"]["arguments"]["to"] = "ann"

    async with serve().client(elicitation_callback=editor(bank, change)) as client:
        assert text_of(await client.call_tool("look", {"to": "eve"})) == 'look {"to": "ann"}'


@pytest.mark.parametrize("resource", ["c1", "c2"])
async def test_edit_must_correspond_to_the_mapping(bank: Bank, serve: Serve, resource: str) -> None:
    """The resource that the mapping reads from an argument is edited too, or the call does not run."""
    bank.permit("customer.get_customer", requires_approval=True)
    bank.tells(declared("find", CUSTOMER))

    def change(context: dict[str, Any]) -> None:
        context["context"]["arguments"]["id"] = "c2"
        context["resource"]["id"] = resource

    async with serve().client(elicitation_callback=editor(bank, change)) as client:
        result = await client.call_tool("find", {"id": "c1"})
    if resource == "c1":
        assert "does not correspond to the mapping" in text_of(result)
    assert bank.ran() == ([("find", {"id": "c2"})] if resource == "c2" else [])


async def test_no_approval_is_used_before_all_are_given(bank: Bank, serve: Serve) -> None:
    bank.permit("object.read", "object.write", requires_approval=True)
    bank.tells(declared("copy", COPY))
    async with serve().client() as client:
        assert "waits for a person's approval" in text_of(await client.call_tool("copy", FILES))
        first, second = pending(bank)
        assert {first["action"], second["action"]} == {"bank.object.read", "bank.object.write"}
        approve(bank, first)
        assert "waits for a person's approval" in text_of(await client.call_tool("copy", FILES))
        assert bank.owner.http.get(f"/api/approvals/{first['id']}").json()["status"] == "approved"
        approve(bank, second)
        assert not (await client.call_tool("copy", FILES)).is_error
        assert (await client.call_tool("copy", FILES)).is_error
    assert bank.ran() == [("copy", FILES)]


async def test_denied_evaluation_uses_no_approval(bank: Bank, serve: Serve) -> None:
    bank.permit("object.read", requires_approval=True)
    bank.tells(declared("copy", COPY))
    async with serve().client() as client:
        assert "'bank.object.write' is blocked" in text_of(await client.call_tool("copy", FILES))
    assert pending(bank) == []


async def test_several_approvals_are_waited_for(bank: Bank, serve: Serve) -> None:
    bank.permit("object.read", "object.write", requires_approval=True)
    bank.tells(declared("copy", COPY))

    async def user(_: object, question: Any) -> ElicitResult:
        for request in pending(bank):
            approve(bank, request)
        return ElicitResult(action="accept")

    async with serve().client(elicitation_callback=user) as client:
        assert not (await client.call_tool("copy", FILES)).is_error
    assert bank.ran() == [("copy", FILES)]


async def test_http_without_mappings(bank: Bank) -> None:
    """Tool calls are checked as over stdio; nothing else is checked."""
    bank.permit("look")
    proxy = HttpProxy(bank, mapping=False, tokens=False)
    try:
        async with proxy.client(None, mode="auto") as client:
            assert text_of(await client.call_tool("look", {"to": "eve"})) == 'look {"to": "eve"}'
            assert (await client.list_prompts()).prompts
            assert (await client.call_tool("drop", {})).is_error
        foreign = proxy.post("ping", {"Host": "evil.example.com"})
        assert foreign.status_code == 421
        assert [context["to"] for context in proxy.contexts("bank.look")] == ["eve"]
    finally:
        proxy.gone()
    assert not any(each["action"].endswith(OPEN_METHODS) for each in bank.owner.entries())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--authzen-mapping"], "--authzen-mapping needs the access token"),
        (["--listen", "127.0.0.1:0", "--authzen-mapping"], "--authzen-mapping needs the access token"),
        (["--token-issuer", "https://issuer.example.com"], "work only with --listen"),
        (["--listen", "127.0.0.1:0", "--allow-roots"], "could reach the wrong client"),
        (["--listen", "0.0.0.0:0"], "reachable from other machines"),
    ],
)
async def test_options_that_do_not_work_together(bank: Bank, options: list[str], why: str) -> None:
    proxy = bank.proxy(*options)
    assert await proxy.ended() == 1
    assert why in proxy.said
