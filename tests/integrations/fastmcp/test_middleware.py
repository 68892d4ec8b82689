"""The middleware for FastMCP, in front of a live gateway."""

import sys
from typing import Any

import pytest
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server import create_proxy
from fastmcp.tools.base import ToolResult
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from support.frameworks.fastmcp import bank, connected, proxied_bank
from support.frameworks.harness import Scene
from support.frameworks.mcp import PAGE, approval_of, text_of
from support.gateway import Owner
from support.readme import ROOT

from toolgate import ConfigurationError
from toolgate_integrations.fastmcp import GuardMiddleware

MODERN, HANDSHAKE = "2026-07-28", "legacy"
PAY = {"to": "eve", "amount": 40}
both_eras = pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
plain_and_proxied = pytest.mark.parametrize("serve", [bank, proxied_bank])


async def call(server: Any, era: str, name: str, arguments: dict[str, Any], user: Any = None) -> Any:
    async with connected(server, era, user) as client:
        return await client.call_tool(name, arguments, raise_on_error=False)


def approving(scene: Scene) -> Any:
    async def user(_: object, question: Any) -> ElicitResult:
        if question.mode == "url":
            scene.approve(approval_of(question))
        return ElicitResult(action="accept", content={} if question.mode == "form" else None)

    return user


@both_eras
@plain_and_proxied
async def test_the_users_way_to_the_page(scene: Scene, era: str, serve: Any) -> None:
    """A client that asks its user opens the approval's page, and carries the call out when it is approved."""
    result = await call(serve(scene), era, "pay", PAY, approving(scene))
    assert (result.is_error, text_of(result)) == (False, "paid 40 to eve")
    assert scene.ran == [("pay", "eve", 40)]
    assert scene.logged() == [("pay", "pending"), ("pay", "success")]


@both_eras
@plain_and_proxied
async def test_a_client_that_cannot_ask_is_told(scene: Scene, era: str, serve: Any) -> None:
    """The model reads which approval its call waits for; once approved the same call goes through, once."""
    server = serve(scene)
    told = await call(server, era, "pay", PAY)
    [approval] = scene.owner.http.get("/api/approvals").json()
    assert told.is_error
    assert approval["id"] in text_of(told)
    scene.approve(approval["id"])
    assert text_of(await call(server, era, "pay", PAY)) == "paid 40 to eve"
    assert (await call(server, era, "pay", PAY)).is_error
    assert scene.ran == [("pay", "eve", 40)]


async def test_a_call_inside_the_process(scene: Scene) -> None:
    """Without a client there is nobody to ask: the caller is told."""
    server = bank(scene)
    assert text_of(await server.call_tool("look", {"what": "sky"})) == "seen sky"  # type: ignore[arg-type]  # has content too
    told = await server.call_tool("pay", PAY)
    assert told.is_error
    assert scene.ran == [("look", "sky")]


@both_eras
async def test_a_guarded_function_asks_by_itself(scene: Scene, owner: Owner, era: str) -> None:
    """Its own action is asked about, once, and held it pauses like any other."""
    owner.permit(scene.agent_id, "stripe.refund", requires_approval=True)
    refunded = []

    @scene.guard.guarded("stripe.refund")
    def refund(amount: int) -> str:
        refunded.append(amount)
        return f"refunded {amount}"

    @scene.guard.guarded("stripe.void")
    async def void(amount: int) -> str:
        raise AssertionError(f"{amount} may not be voided")

    server = bank(scene)
    server.tool(refund)
    server.tool(void)
    assert text_of(await call(server, era, "refund", {"amount": 3}, approving(scene))) == "refunded 3"
    assert "'stripe.void' is blocked" in text_of(await call(server, era, "void", {"amount": 3}))
    assert refunded == [3]
    assert scene.requests() == 1
    assert scene.logged() == [("refund", "pending"), ("refund", "success"), ("void", "denied")]


@plain_and_proxied
async def test_a_tool_that_asks_for_itself(scene: Scene, serve: Any) -> None:
    """Held or not, a tool's own question reaches the user, and its answer the tool."""
    heard: list[Any] = []

    async def ask(ctx: Context) -> Any:
        if not ctx.input_responses:
            form = ElicitRequestFormParams(
                message="which?", requested_schema={"type": "object", "properties": {}}
            )
            return InputRequiredResult(
                input_requests={"which": ElicitRequest(params=form)}, request_state="mine"
            )
        heard.append((set(ctx.input_responses), ctx.request_state))
        return "answered"

    scene.owner.permit(scene.agent_id, "bank.ask", requires_approval=True)
    if serve is bank:
        server = bank(scene)
        server.tool(ask, output_schema=None)
    else:
        backend: FastMCP[Any] = FastMCP("backend")
        backend.tool(ask, output_schema=None)
        server = create_proxy(backend, name="proxy")
        server.add_middleware(GuardMiddleware(scene.guard, name="bank", approval_page=PAGE, hold_timeout=0.2))
    assert text_of(await call(server, MODERN, "ask", {}, approving(scene))) == "answered"
    assert heard == [({"which"}, "mine")]
    assert scene.logged() == [("ask", "pending")] * 3 + [("ask", "success")]


async def test_failures_are_recorded(scene: Scene) -> None:
    """Tools that raise, deliberately or not, and error results are failures; what raised is raised on."""
    server = bank(scene)

    def crash() -> str:
        raise RuntimeError("out of paper")

    def refuse() -> str:
        raise ToolError("insufficient funds")

    def report() -> ToolResult:
        return ToolResult(content="no such account", is_error=True)

    told = {}
    for tool in (crash, refuse, report):
        server.tool(tool)
        scene.owner.permit(scene.agent_id, f"bank.{tool.__name__}")
        result = await call(server, MODERN, tool.__name__, {})
        assert result.is_error
        told[tool.__name__] = text_of(result)
    scene.logged()
    recorded = {each["action"]: each for each in scene.owner.entries()}
    assert {each["status"] for each in recorded.values()} == {"failed"}
    for name, text in told.items():
        assert text in str(recorded[f"bank.{name}"]["context"])


async def test_tools_there_are_not(scene: Scene) -> None:
    """An unknown tool is asked about and never runs; granted it is the server that says so."""
    scene.owner.permit(scene.agent_id, "bank.granted")
    server = bank(scene)
    assert "is blocked" in text_of(await call(server, MODERN, "ghost", {}))
    assert "Unknown tool" in text_of(await call(server, MODERN, "granted", {}))


async def test_dotted_names(scene: Scene, owner: Owner) -> None:
    """The dotted name of a tool of this process is its action; that of one elsewhere stands below the server's."""
    for action in ("mail.send", "bank.mail.send", "ours.drop"):
        owner.permit(scene.agent_id, action)

    def send() -> str:
        return "sent"

    here = bank(scene, tool_actions={"drop": "ours.drop"})
    here.tool(send, name="mail.send")
    backend: FastMCP[Any] = FastMCP("backend")
    backend.tool(send, name="mail.send")
    there = create_proxy(backend, name="proxy")
    there.add_middleware(GuardMiddleware(scene.guard, name="bank"))
    for server in (here, there):
        assert text_of(await call(server, MODERN, "mail.send", {})) == "sent"
    assert text_of(await call(here, MODERN, "drop", {"table": "users"})) == "dropped users"
    scene.logged()
    assert [each["action"] for each in owner.entries()] == ["ours.drop", "bank.mail.send", "mail.send"]


async def test_who_acts_is_the_token(scene: Scene, owner: Owner) -> None:
    """The agent is found by the access token's client."""
    other = owner.agent("other")
    server = bank(scene, agents={"console": other})
    assert text_of(await call(server, MODERN, "look", {"what": "sky"})) == "seen sky"
    reset = auth_context_var.set(AuthenticatedUser(AccessToken(token="t", client_id="console", scopes=[])))
    try:
        assert "is blocked" in text_of(await call(server, MODERN, "look", {"what": "sky"}))
    finally:
        auth_context_var.reset(reset)
    scene.logged()
    assert {each["agent_id"] for each in owner.entries()} == {scene.agent_id, other}


@both_eras
async def test_mounted_servers(scene: Scene, owner: Owner, era: str) -> None:
    """A guarded server in a guarded one is asked about twice, by both names, and both must agree."""
    owner.permit(scene.agent_id, "house.bank_look")
    owner.permit(scene.agent_id, "house.bank_pay", requires_approval=True)
    house: FastMCP[Any] = FastMCP(
        "a house",
        middleware=[GuardMiddleware(scene.guard, name="house", approval_page=PAGE, hold_timeout=0.2)],
    )
    house.mount(bank(scene), namespace="bank")
    assert text_of(await call(house, era, "bank_look", {"what": "sky"})) == "seen sky"
    assert scene.guard.flush(30)
    assert {each["action"] for each in owner.entries()} == {"house.bank_look", "bank.look"}
    assert text_of(await call(house, era, "bank_pay", PAY, approving(scene))) == "paid 40 to eve"
    assert scene.ran == [("look", "sky"), ("pay", "eve", 40)]


@both_eras
async def test_a_server_of_somebody_else_over_standard_input(
    scene: Scene, owner: Owner, era: str, tmp_path: Any
) -> None:
    """A proxy guards a server that runs as a process of its own and knows of no guard."""
    script = tmp_path / "server.py"
    script.write_text(
        "from mcp.server import MCPServer\n"
        "server = MCPServer('theirs')\n"
        "@server.tool()\n"
        "def pay(to: str, amount: int) -> str:\n"
        "    return f'paid {amount} to {to}'\n"
        "server.run('stdio')\n"
    )
    there = {"mcpServers": {"theirs": {"command": sys.executable, "args": [str(script)], "cwd": str(ROOT)}}}
    proxy = create_proxy(there, name="proxy")
    proxy.add_middleware(GuardMiddleware(scene.guard, name="bank", approval_page=PAGE, hold_timeout=0.2))
    assert text_of(await call(proxy, era, "pay", PAY, approving(scene))) == "paid 40 to eve"
    assert scene.logged() == [("pay", "pending"), ("pay", "success")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "tools"}, "name is 'tools'"),
        (
            {"name": "bank", "on_hold": "later"},
            "on_hold is 'later'; use 'pause', 'wait', 'raise' or 'notify_model'",
        ),
        ({"name": "bank", "hold_timeout": 0}, "hold_timeout is 0"),
        ({"name": "bank", "approval_page": "gate"}, "approval_page is 'gate'"),
    ],
)
def test_wrong_options(options: dict[str, Any], said: str) -> None:
    """Each is named when the middleware is made."""
    with pytest.raises(ConfigurationError, match=said):
        GuardMiddleware(**options)
