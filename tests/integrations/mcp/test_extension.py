"""The extension of the official SDK, in front of a live gateway."""

import asyncio
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    Implementation,
    InputRequiredResult,
    TextContent,
)
from support.frameworks.harness import Scene
from support.frameworks.mcp import approval_of, bank, said, text_of
from support.gateway import Owner
from support.waiting import eventually

from toolgate import ConfigurationError
from toolgate_integrations.mcp import GuardExtension

MODERN, HANDSHAKE = "2026-07-28", "legacy"
PAY = {"to": "eve", "amount": 40}
both_eras = pytest.mark.parametrize("era", [MODERN, HANDSHAKE])


class User:
    """Answers what the client asks, one after the other; the last answer again and again."""

    def __init__(self, scene: Scene, *answers: str, approves: bool = False) -> None:
        self._scene, self._answers, self._approves = scene, list(answers), approves
        self.asked: list[Any] = []

    async def __call__(self, _: object, question: Any) -> ElicitResult:
        self.asked.append(question)
        if self._approves:
            self._scene.approve(approval_of(question))
        answer: Any = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return ElicitResult(action=answer)


async def call(
    server: Any, era: str, name: str, arguments: dict[str, Any], user: Any = None, **options: Any
) -> Any:
    async with Client(server, mode=era, elicitation_callback=user, **options) as client:
        return await client.call_tool(name, arguments)


def pending(scene: Scene) -> list[str]:
    found = scene.owner.http.get("/api/approvals", params={"status": "pending"}).json()
    return [each["id"] for each in found]


@both_eras
async def test_the_users_way_to_the_page(scene: Scene, era: str) -> None:
    """A client that asks its user opens the approval's page, and carries the call out when it is approved."""
    user = User(scene, "accept", approves=True)
    result = await call(bank(scene), era, "pay", PAY, user)
    assert (result.is_error, text_of(result)) == (False, "paid 40 to eve")
    assert [question.mode for question in user.asked] == ["url"]
    assert scene.logged() == [("pay", "pending"), ("pay", "success")]


@both_eras
async def test_a_client_that_cannot_ask_is_told(scene: Scene, era: str) -> None:
    """The model reads which approval its call waits for; once approved the same call goes through, once."""
    server = bank(scene)
    told = await call(server, era, "pay", PAY)
    [approval_id] = pending(scene)
    assert told.is_error
    assert approval_id in text_of(told)
    assert "the same call with the same arguments will run" in text_of(told)
    scene.approve(approval_id)
    assert text_of(await call(server, era, "pay", PAY)) == "paid 40 to eve"
    assert (await call(server, era, "pay", PAY)).is_error
    assert scene.ran == [("pay", "eve", 40)]


@both_eras
async def test_told_although_the_client_could_ask(scene: Scene, era: str) -> None:
    """`on_hold="notify_model"` asks no user."""
    user = User(scene, "accept")
    told = await call(bank(scene, on_hold="notify_model"), era, "pay", PAY, user)
    assert "waits for a person" in text_of(told)
    assert user.asked == []


@both_eras
async def test_waiting(scene: Scene, era: str) -> None:
    """`on_hold="wait"` keeps the client until a person decided."""
    server = bank(scene, on_hold="wait", hold_timeout=None)
    waiting = asyncio.create_task(call(server, era, "pay", PAY))

    async def asked() -> list[str]:
        return await asyncio.to_thread(pending, scene)

    [approval_id] = await eventually(asked)
    scene.approve(approval_id)
    assert text_of(await waiting) == "paid 40 to eve"


@both_eras
async def test_a_dismissed_question_withdraws_the_request(scene: Scene, era: str) -> None:
    """Nobody could use an approval any more, so nobody is asked for one."""
    told = await call(bank(scene), era, "pay", PAY, User(scene, "cancel"))
    assert "Calling the tool again creates a new request" in text_of(told)
    assert pending(scene) == []
    assert scene.ran == []


@both_eras
async def test_a_user_who_only_clicks_decides_nothing(scene: Scene, era: str) -> None:
    """Accepting wakes; without a decision at the gateway the call is given up, and never runs."""
    user = User(scene, "accept")
    told = await call(bank(scene, hold_timeout=0.01), era, "pay", PAY, user)
    assert told.is_error
    assert "was not decided and is cancelled" in text_of(told)
    assert len(user.asked) == 8
    assert (scene.ran, pending(scene), scene.requests()) == ([], [], 1)


async def test_a_client_that_fails_to_ask(scene: Scene) -> None:
    """An error in place of an answer is nobody's yes."""

    async def broken(*_: object) -> Any:
        raise RuntimeError("no window")

    told = await call(bank(scene), HANDSHAKE, "pay", PAY, broken)
    assert "was not decided and is cancelled" in text_of(told)
    assert scene.ran == []


async def test_the_same_state_sent_many_times_at_once(scene: Scene) -> None:
    """However often a sealed state comes back, its call is carried out once."""
    async with Client(bank(scene), mode=MODERN, elicitation_callback=User(scene, "accept")) as client:
        first: Any = await client.session.call_tool("pay", PAY, allow_input_required=True)
        scene.approve(approval_of(first.input_requests["toolgate"].params))
        back: Any = {"request_state": first.request_state, "input_responses": {"toolgate": said("go")}}
        found = await asyncio.gather(
            *(client.session.call_tool("pay", PAY, allow_input_required=True, **back) for _ in range(5))
        )
    assert scene.ran == [("pay", "eve", 40)]
    assert sum(isinstance(each, CallToolResult) and not each.is_error for each in found) == 1
    assert scene.requests() == 1


async def test_a_late_no_changes_nothing(scene: Scene) -> None:
    """Declined after it was carried out, a call stays carried out and recorded."""
    async with Client(bank(scene), mode=MODERN, elicitation_callback=User(scene, "accept")) as client:
        first: Any = await client.session.call_tool("pay", PAY, allow_input_required=True)
        approval_id = approval_of(first.input_requests["toolgate"].params)
        scene.approve(approval_id)
        for answer in ("go", "reject"):
            back: Any = {"request_state": first.request_state, "input_responses": {"toolgate": said(answer)}}
            result = await client.session.call_tool("pay", PAY, **back)
    assert result.is_error
    assert scene.status(approval_id) == "consumed"
    assert scene.ran == [("pay", "eve", 40)]


@pytest.mark.parametrize("changed", ["arguments", "state"])
async def test_a_state_is_good_for_its_own_call(scene: Scene, changed: str) -> None:
    """With other arguments, or tampered with, the SDK refuses it and nothing is asked."""
    async with Client(bank(scene), mode=MODERN, elicitation_callback=User(scene, "accept")) as client:
        first: Any = await client.session.call_tool("pay", PAY, allow_input_required=True)
        scene.approve(approval_of(first.input_requests["toolgate"].params))
        state = first.request_state if changed == "arguments" else "x" + first.request_state
        arguments = {**PAY, "amount": 4000} if changed == "arguments" else PAY
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await client.session.call_tool("pay", arguments, request_state=state)
    assert scene.ran == []


async def test_a_tool_that_asks_for_itself(scene: Scene) -> None:
    """Held or not, a tool's own question reaches the user, and its answer the tool."""
    server = bank(scene)
    heard: list[Any] = []

    async def ask(ctx: Context) -> CallToolResult | InputRequiredResult:
        answers = ctx.input_responses
        if not answers:
            form = ElicitRequestFormParams(
                message="which?", requested_schema={"type": "object", "properties": {}}
            )
            return InputRequiredResult(
                input_requests={"which": ElicitRequest(params=form)}, request_state="mine"
            )
        heard.append((dict(answers), ctx.request_state))
        return CallToolResult(content=[TextContent(type="text", text="answered")])

    server.tool()(ask)
    scene.owner.permit(scene.agent_id, "bank.ask", requires_approval=True)

    async def user(_: object, question: Any) -> ElicitResult:
        if question.mode == "form":
            return ElicitResult(action="accept", content={})
        scene.approve(approval_of(question))
        return ElicitResult(action="accept")

    assert text_of(await call(server, MODERN, "ask", {}, user)) == "answered"
    [(answers, state)] = heard
    assert (set(answers), state) == ({"which"}, "mine")
    assert scene.logged() == [("ask", "pending")] * 3 + [("ask", "success")]


async def test_failures_are_recorded_with_what_the_model_reads(scene: Scene) -> None:
    """Crashes, deliberate errors and error results are failures, whatever the server made of them."""
    server = bank(scene)
    told = {}

    def crash() -> str:
        raise RuntimeError("out of paper")

    def refuse() -> str:
        raise ToolError("insufficient funds")

    def report() -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text="no such account")], is_error=True)

    for tool in (crash, refuse, report):
        server.tool()(tool)
        scene.owner.permit(scene.agent_id, f"bank.{tool.__name__}")
        told[tool.__name__] = text_of(await call(server, MODERN, tool.__name__, {}))
    scene.logged()
    recorded = {each["action"]: each for each in scene.owner.entries()}
    assert {each["status"] for each in recorded.values()} == {"failed"}
    for name, text in told.items():
        assert text in str(recorded[f"bank.{name}"]["context"])


async def test_arguments_that_do_not_fit_and_tools_there_are_not(scene: Scene) -> None:
    """Both are asked about and answered by the server, and neither runs."""
    server = bank(scene)
    assert "is blocked" in text_of(await call(server, MODERN, "ghost", {}))
    assert (await call(server, MODERN, "look", {"wat": 1})).is_error
    assert scene.ran == []


async def test_who_acts_is_the_token_and_never_what_a_client_calls_itself(scene: Scene, owner: Owner) -> None:
    """The agent is found by the access token's client."""
    other = owner.agent("other")
    server = bank(scene, agents={"console": other})
    info = Implementation(name="console", version="1")
    assert text_of(await call(server, MODERN, "look", {"what": "sky"}, client_info=info)) == "seen sky"
    user = AuthenticatedUser(AccessToken(token="t", client_id="console", scopes=[]))
    reset = auth_context_var.set(user)
    try:
        assert "is blocked" in text_of(await call(server, MODERN, "look", {"what": "sky"}))
    finally:
        auth_context_var.reset(reset)
    scene.logged()
    assert {each["agent_id"] for each in owner.entries()} == {scene.agent_id, other}


async def test_functions_that_are_guarded_themselves(scene: Scene, owner: Owner) -> None:
    """Such a tool asks by itself, under its own action, and is asked about once."""
    owner.permit(scene.agent_id, "stripe.refund")

    @scene.guard.guarded("stripe.refund")
    def refund(amount: int) -> str:
        return f"refunded {amount}"

    server = bank(scene, functions={"refund": refund})
    server.tool()(refund)
    assert text_of(await call(server, MODERN, "refund", {"amount": 3})) == "refunded 3"
    assert scene.guard.flush(30)
    assert [(each["action"], each["status"]) for each in owner.entries()] == [("stripe.refund", "success")]


async def test_dotted_names(scene: Scene, owner: Owner) -> None:
    """A tool's dotted name is its action where its function is named; otherwise it stands below the server's."""
    for action in ("mail.send", "bank.mail.read", "ours.drop"):
        owner.permit(scene.agent_id, action)

    def send() -> str:
        return "sent"

    def read() -> str:
        return "read"

    server = bank(scene, functions={"mail.send": send}, tool_actions={"drop": "ours.drop"})
    server.tool("mail.send")(send)
    server.tool("mail.read")(read)
    assert text_of(await call(server, MODERN, "mail.send", {})) == "sent"
    assert text_of(await call(server, MODERN, "mail.read", {})) == "read"
    assert text_of(await call(server, MODERN, "drop", {"table": "users"})) == "dropped users"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "tools"}, "name is 'tools'"),
        ({"name": " "}, "name is ' '"),
        ({"name": 7}, "name is 7"),
        (
            {"name": "bank", "on_hold": "later"},
            "on_hold is 'later'; use 'pause', 'wait', 'raise' or 'notify_model'",
        ),
        ({"name": "bank", "hold_timeout": 0}, "hold_timeout is 0"),
        ({"name": "bank", "hold_timeout": True}, "hold_timeout is True"),
        ({"name": "bank", "approval_page": "gate"}, "approval_page is 'gate'"),
        ({"name": "bank", "functions": ["pay"]}, "functions is \\['pay'\\]"),
        (
            {"name": "bank", "functions": {"bank.pay": print, "pay": print}},
            "'bank.pay' and 'pay' would have the same action",
        ),
    ],
)
def test_wrong_options(options: dict[str, Any], said: str) -> None:
    """Each is named when the extension is made."""
    with pytest.raises(ConfigurationError, match=said):
        GuardExtension(**options)
