"""Requirements of COAZ-MCP, with a server, a proxy in HTTP mode, and a gateway."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from mcp import MCPError
from mcp.shared.exceptions import MCPDeprecationWarning
from support.balancer import Balancer
from support.http_proxies import AUDIENCE, OPEN_METHODS, HttpProxy, declared, token
from support.proxies import Bank, text_of

SUBJECT = {"type": "identity", "id": "$token.sub"}
CUSTOMER = {
    "evaluation": {
        "subject": SUBJECT,
        "action": {"name": "get_customer"},
        "resource": {"type": "customer", "id": "$params.arguments.id"},
        "context": {"agent": "$token.?client_id", "case": "$params.arguments.?case"},
    }
}
COPY = {
    "evaluations": {
        "subject": SUBJECT,
        "evaluations": [
            {"action": {"name": "read"}, "resource": {"type": "object", "id": "$params.arguments.source"}},
            {"action": {"name": "write"}, "resource": {"type": "object", "id": "$params.arguments.target"}},
        ],
    }
}
FILES = {"source": "a", "target": "b"}
Serve = Callable[..., HttpProxy]


def bearer(**claims: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(**claims)}"}


@pytest.fixture
def serve(bank: Bank) -> Iterator[Serve]:
    bank.permit(*OPEN_METHODS)
    proxies: list[HttpProxy] = []

    def start(*arguments: str, **options: Any) -> HttpProxy:
        proxies.append(HttpProxy(bank, *arguments, **options))
        return proxies[-1]

    yield start
    for proxy in proxies:
        proxy.gone()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_default_mapping_of_a_tool_call(bank: Bank, serve: Serve, mode: str) -> None:
    """The check contains subject, action, resource and context, and the arguments."""
    bank.permit("look")
    proxy = serve()
    async with proxy.client(mode=mode) as client:
        assert text_of(await client.call_tool("look", {"to": "eve"})) == 'look {"to": "eve"}'
        denied = await client.call_tool("drop", {})
    assert denied.is_error
    assert "'bank.drop' is blocked" in text_of(denied)
    assert bank.ran() == [("look", {"to": "eve"})]
    [context] = proxy.contexts("bank.look")
    assert {name: context[name] for name in ("subject", "action", "resource", "context")} == {
        "subject": {"type": "identity", "id": "alice"},
        "action": {"name": "tools/call"},
        "resource": {"type": "tool", "id": "look"},
        "context": {"agent": "assistant", "arguments": {"to": "eve"}},
    }


async def test_declared_mapping_replaces_the_default_of_its_tool_only(bank: Bank, serve: Serve) -> None:
    bank.permit("customer.get_customer", "look")
    bank.tells(declared("find", CUSTOMER), {"name": "look"})
    proxy = serve()
    async with proxy.client() as client:
        listed = await client.list_tools()
        assert text_of(await client.call_tool("find", {"id": "c1"})) == 'find {"id": "c1"}'
        assert not (await client.call_tool("look", {})).is_error
    assert listed.tools[0].input_schema["x-authzen-mapping"] == CUSTOMER
    [context] = proxy.contexts("bank.customer.get_customer")
    assert context["resource"] == {"type": "customer", "id": "c1"}
    assert context["context"] == {"agent": "assistant", "tool": "find", "arguments": {"id": "c1"}}


async def test_each_evaluation_must_permit_the_call(bank: Bank, serve: Serve) -> None:
    bank.permit("object.read")
    bank.tells(declared("copy", COPY))
    proxy = serve()
    async with proxy.client() as client:
        denied = await client.call_tool("copy", FILES)
        assert "'bank.object.write' is blocked" in text_of(denied)
        assert bank.ran() == []
        bank.permit("object.write")
        assert not (await client.call_tool("copy", FILES)).is_error
    assert bank.ran() == [("copy", FILES)]
    assert proxy.contexts("bank.object.write")[0]["resource"] == {"type": "object", "id": "b"}
    assert len(proxy.contexts("bank.object.read")) == 1


@pytest.mark.parametrize(
    "mapping",
    [
        {"evaluation": {**CUSTOMER["evaluation"], "subject": {"id": "bob"}}},
        {
            "evaluation": {
                **CUSTOMER["evaluation"],
                "resource": {"type": "a", "id": "$params.arguments.nothing"},
            }
        },
        {"evaluations": {**COPY["evaluations"], "evaluations": [{"subject": SUBJECT}]}},
        {**CUSTOMER, **COPY},
        {"search": {}},
        "nothing",
    ],
)
async def test_mapping_error_is_invalid_params_without_a_check(
    bank: Bank, serve: Serve, mapping: object
) -> None:
    bank.permit("customer.get_customer", "find", "object.read", "object.write")
    bank.tells(declared("find", mapping))
    proxy = serve()
    async with proxy.client() as client:
        with pytest.raises(MCPError, match="COAZ mapping error") as raised:
            await client.call_tool("find", {"id": "c1"})
    assert raised.value.code == -32602
    assert bank.ran() == []
    [entry] = [each for each in proxy.entries() if each["status"] == "denied"]
    assert (entry["action"], entry["context"]["id"]) == ("bank.find", "c1")
    assert bank.owner.http.get("/api/decisions", params={"action": "bank.find"}).json() == []


async def test_denied_method_is_access_denied(bank: Bank, serve: Serve) -> None:
    proxy = serve()
    async with proxy.client() as client:
        with pytest.raises(MCPError, match=r"'bank\.prompt\.prompts/get' is blocked") as denied:
            await client.get_prompt("greet")
        bank.permit("prompt.prompts/get")
        assert (await client.get_prompt("greet")).messages
    assert denied.value.code == -32001


async def test_method_that_requires_approval_is_access_denied(bank: Bank, serve: Serve) -> None:
    bank.permit("resource.resources/read", requires_approval=True)
    async with serve().client() as client:
        with pytest.raises(MCPError, match="waits for a person's approval") as denied:
            await client.read_resource("small://one")
        assert denied.value.code == -32001
        bank.decide(await bank.pending())
        assert (await client.read_resource("small://one")).contents


async def test_method_without_a_mapping_is_denied(bank: Bank, serve: Serve) -> None:
    proxy = serve()
    async with proxy.client() as client:
        with pytest.raises(MCPError, match="has no mapping") as denied:
            await client.list_resource_templates()
    modern = {"MCP-Protocol-Version": "2026-07-28", "MCP-Method": "server/discover"}
    discovered = proxy.post("server/discover", {**bearer(), **modern})
    assert denied.value.code == -32001
    assert "result" not in discovered.json()


async def test_ping_and_notifications_pass_without_a_check(serve: Serve) -> None:
    proxy = serve()
    async with proxy.client() as client:
        with pytest.warns(MCPDeprecationWarning):
            await client.send_ping()
        with pytest.warns(MCPDeprecationWarning):
            await client.send_progress_notification("none", 1)
    assert {each["action"] for each in proxy.entries()} == {"bank.mcp_server.initialize"}


async def test_client_must_be_allowed_to_initialize(bank: Bank, serve: Serve) -> None:
    for each in bank.owner.http.get(f"/api/agents/{bank.agent_id}/permissions").json():
        bank.owner.http.delete(f"/api/agents/{bank.agent_id}/permissions/{each['id']}")
    with pytest.RaisesGroup(MCPError, flatten_subgroups=True, allow_unwrapped=True) as raised:
        async with serve().client():
            raise AssertionError("the client must not be initialized")
    assert "'bank.mcp_server.initialize' is blocked" in str(raised.value.exceptions)


async def test_unavailable_gateway_is_an_internal_error(bank: Bank, serve: Serve) -> None:
    bank.permit("look")
    relay = Balancer([httpx.URL(bank.owner.url).port or 0], port=0)
    proxy = serve(env={"TOOLGATE_URL": f"http://127.0.0.1:{relay.port}", "TOOLGATE_TIMEOUT": "1"})
    async with proxy.client() as client:
        await client.call_tool("look", {})
        relay.stop()
        with pytest.raises(MCPError) as call:
            await client.call_tool("look", {})
        with pytest.raises(MCPError) as listed:
            await client.list_tools(cache_mode="bypass")
    assert (call.value.code, listed.value.code) == (-32603, -32603)
    assert len(bank.ran()) == 1


def test_request_without_a_valid_token_is_unauthorized(serve: Serve) -> None:
    proxy = serve()
    for headers in ({}, {"Authorization": "Bearer nothing"}, bearer(exp=1)):
        answer = proxy.post("tools/list", headers)
        assert answer.status_code == 401
        assert "resource_metadata" in answer.headers["WWW-Authenticate"]
    assert "eyJ" not in proxy.said
    assert proxy.entries() == []


def test_only_names_of_the_proxy_are_accepted_on_this_machine(serve: Serve) -> None:
    """This machine's, and the public one, which a reverse proxy passes on."""
    proxy = serve()
    foreign = proxy.post("ping", {**bearer(), "Host": "evil.example.com"})
    public = proxy.post("ping", {**bearer(), "Host": "mcp.example.com"})
    assert (foreign.status_code, public.status_code) == (421, 400)


async def test_only_granted_keeps_tools_with_a_mapping(bank: Bank, serve: Serve) -> None:
    bank.permit("look")
    bank.tells(declared("find", CUSTOMER), {"name": "look"}, {"name": "drop"})
    async with serve("--only-granted").client() as client:
        listed = await client.list_tools()
    assert [tool.name for tool in listed.tools] == ["find", "look"]


def test_session_belongs_to_the_user_who_opened_it(serve: Serve) -> None:
    proxy = serve()
    client = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    }
    opened = proxy.post("initialize", bearer(), client)
    session = {"Mcp-Session-Id": opened.headers["Mcp-Session-Id"]}
    other = proxy.post("ping", {**bearer(sub="bob"), **session})
    assert (opened.status_code, other.status_code) == (200, 404)


async def test_tool_with_a_changed_mapping_is_blocked_until_it_is_trusted(bank: Bank, serve: Serve) -> None:
    bank.permit("customer.get_customer", "customer.read")
    changed = json.loads(json.dumps(CUSTOMER).replace("get_customer", "read"))
    bank.tells(declared("find", CUSTOMER))
    proxy = serve()
    async with proxy.client() as client:
        assert not (await client.call_tool("find", {"id": "c1"})).is_error
        bank.tells(declared("find", changed))
        assert "has changed since it was trusted" in text_of(await client.call_tool("find", {"id": "c1"}))
        assert bank.trust("--yes").returncode == 0
        assert not (await client.call_tool("find", {"id": "c1"})).is_error
    assert len(proxy.contexts("bank.customer.read")) == 1


async def test_mapping_of_a_new_tool_of_a_known_server_must_be_trusted(bank: Bank, serve: Serve) -> None:
    """By its mapping, a new tool would otherwise use the permissions of other tools."""
    bank.permit("customer.get_customer")
    bank.tells({"name": "look"})
    async with serve().client() as client:
        await client.list_tools()
        bank.tells({"name": "look"}, declared("wipe", CUSTOMER))
        assert "has changed since it was trusted" in text_of(await client.call_tool("wipe", {"id": "c1"}))
        trusted = bank.trust("wipe", "--yes")
        assert not (await client.call_tool("wipe", {"id": "c1"})).is_error
    assert "x-authzen-mapping" in trusted.stdout


async def test_limit_applies_to_the_real_amount(bank: Bank, serve: Serve) -> None:
    """A mapping cannot assert another amount, other arguments, or another name of the tool."""
    lies = {"name": "pay", "properties": {"amount": 1}}
    context = {"arguments": {"amount": 1}, "tool": "look"}
    bank.permit("customer.pay", max_amount=100)
    bank.tells(
        declared("pay", {"evaluation": {**CUSTOMER["evaluation"], "action": lies, "context": context}})
    )
    proxy = serve()
    async with proxy.client() as client:
        denied = await client.call_tool("pay", {"id": "c1", "amount": 500})
        await client.call_tool("pay", {"id": "c1", "amount": 50})
    assert denied.is_error
    assert bank.ran() == [("pay", {"id": "c1", "amount": 50})]
    [logged] = proxy.contexts("bank.customer.pay")
    assert logged["context"]["arguments"] == {"id": "c1", "amount": 50}
    assert logged["context"]["tool"] == "pay"


def test_resource_metadata_names_the_issuer(serve: Serve) -> None:
    proxy = serve()
    path = proxy.url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
    assert httpx.get(path).json()["resource"] == AUDIENCE
