"""Tools of MCP servers have the name of their server here, whatever they say of themselves."""

from typing import Any

import pytest
from fastmcp import FastMCP
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset
from support.frameworks.harness import Call, Scene
from support.frameworks.pydantic_ai import agent, resumed, scripted

from toolgate import ConfigurationError
from toolgate_integrations.pydantic_ai import GuardCapability


def server(scene: Scene, **named: Any) -> MCPToolset[Any]:
    mcp = FastMCP("the-best-bank")
    mcp.tool(scene.pay)
    mcp.tool(scene.look)
    return MCPToolset(mcp, **named)


LAYERS: dict[str, Any] = {
    "id": (lambda scene: server(scene, id="bank"), "look"),
    "id, prefixed": (lambda scene: server(scene, id="bank").prefixed("my"), "my_look"),
    "prefix": (lambda scene: server(scene).prefixed("bank"), "bank_look"),
    "two prefixes": (lambda scene: server(scene).prefixed("in").prefixed("bank"), "bank_in_look"),
    "renamed": (lambda scene: server(scene, id="bank").renamed({"peek": "look"}), "peek"),
    "filtered": (lambda scene: server(scene).prefixed("bank").filtered(lambda *_: True), "bank_look"),
    "combined": (lambda scene: CombinedToolset([server(scene)]).prefixed("bank"), "bank_look"),
    "for each run": (lambda scene: lambda ctx: server(scene, id="bank"), "look"),
}


@pytest.mark.parametrize("layers", LAYERS)
async def test_a_server_is_called_what_it_is_called_here(scene: Scene, layers: str) -> None:
    """The action is the server's local name and the tool's own, below whatever else names it."""
    scene.owner.permit(scene.agent_id, "bank.look")
    made, name = LAYERS[layers]
    call = Call(name, {"what": "sky"}, "call-1")
    result = await agent(scene, call, tools=[], toolsets=[made(scene)]).run("go")
    assert (scene.ran, result.output) == ([("look", "sky")], "done")
    assert scene.guard.flush(30)
    assert [(each["action"], each["status"]) for each in scene.owner.entries()] == [("bank.look", "success")]


async def test_a_held_call_of_a_server(scene: Scene) -> None:
    """It pauses the run, and is carried out once."""
    scene.owner.permit(scene.agent_id, "bank.pay", requires_approval=True)
    call = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
    paying = agent(scene, call, tools=[], toolsets=[server(scene, id="bank")])
    first = await paying.run("go")
    scene.approve(first.output.metadata["call-pay"]["approval_id"], context={"to": "eve", "amount": 25})
    last = await resumed(paying, first, pay=True)
    assert (scene.ran, last.output) == ([("pay", "eve", 25)], "done")


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ({}, "has no name, which the tool's action must contain"),
        ({"id": "tools"}, "cannot have the name 'tools'"),
    ],
)
async def test_a_server_without_a_name_of_its_own(
    scene: Scene, caplog: pytest.LogCaptureFixture, named: dict[str, str], why: str
) -> None:
    """Nothing of it runs until somebody names it, and the operator reads what to do."""
    call = Call("look", {"what": "sky"}, "call-look")
    toolset: AbstractToolset[Any] = server(scene, **named)
    with pytest.raises(ConfigurationError, match=why):
        await agent(scene, call, tools=[], toolsets=[toolset]).run("go")
    assert scene.ran == []
    assert why in caplog.text
    capabilities = [GuardCapability(scene.guard, tool_actions={"look": "tools.look"})]
    await agent(scene, call, tools=[], toolsets=[toolset], capabilities=capabilities).run("go")
    assert scene.ran == [("look", "sky")]


async def test_a_server_that_fails(scene: Scene) -> None:
    """An error of the server's tool is a failure in the log."""
    scene.owner.permit(scene.agent_id, "bank.burn")
    mcp = FastMCP("bank")
    mcp.tool(scene.burn)
    burning = Agent(
        scripted([Call("burn", {"what": "water"}, "call-burn")]),
        toolsets=[MCPToolset(mcp, id="bank")],
        capabilities=[GuardCapability(scene.guard)],
    )
    assert (await burning.run("go")).output == "done"
    assert scene.ran == [("burn", "water")]
    assert scene.logged() == [("burn", "failed")]
