"""Tools of MCP servers have the name of their server here, whatever they say of themselves."""

import sys
from typing import Any

import pytest
from mcp import StdioServerParameters, stdio_client
from strands.tools.mcp import MCPClient
from strands.types.exceptions import EventLoopException
from support.frameworks.harness import Call, Scene
from support.frameworks.strands import agent, answers, read
from support.readme import ROOT

from toolgate import ConfigurationError


def server(**named: Any) -> MCPClient:
    # Beside the script there is a module that is called mcp, too.
    script = ROOT / "tests" / "support" / "frameworks" / "bank.py"
    command = StdioServerParameters(command=sys.executable, args=["-P", str(script)])
    return MCPClient(lambda: stdio_client(command), **named)


async def test_a_server_is_called_what_it_is_called_here(scene: Scene) -> None:
    """The action is the prefix of its tools and a tool's own name; what was approved is what it is sent."""
    scene.owner.permit(scene.agent_id, "bank.look")
    scene.owner.permit(scene.agent_id, "bank.pay", requires_approval=True)
    look = Call("bank_look", {"what": "sky"}, "call-look")
    pay = Call("bank_pay", {"to": "eve", "amount": 40}, "call-pay")
    burn = Call("bank_burn", {"what": "water"}, "call-burn")
    scene.owner.permit(scene.agent_id, "bank.burn")
    with server(prefix="bank") as client:
        paying = agent(scene, look, pay, burn, tools=client.list_tools_sync())
        first = await paying.invoke_async("go")
        [waiting] = first.interrupts
        scene.approve(waiting.reason["approval_id"], context={"to": "eve", "amount": 25})
        await paying.invoke_async(answers({"call-pay": waiting.id}, "y"))
    told = read(paying)
    assert (told["call-look"], told["call-pay"]) == (("success", "seen sky"), ("success", "paid 25 to eve"))
    assert "does not burn" in told["call-burn"][1]
    assert scene.guard.flush(30)
    assert sorted((each["action"], each["status"]) for each in scene.owner.entries()) == [
        ("bank.burn", "failed"),
        ("bank.look", "success"),
        ("bank.pay", "pending"),
        ("bank.pay", "success"),
    ]


@pytest.mark.parametrize(
    ("named", "name", "why"),
    [
        ({}, "look", "has no name, which the tool's action must contain"),
        ({"prefix": "tools"}, "tools_look", "cannot have the name 'tools'"),
    ],
)
async def test_a_server_without_a_name_is_refused(
    scene: Scene, caplog: pytest.LogCaptureFixture, named: Any, name: str, why: str
) -> None:
    """Its tools are not taken for those of this process; the log says what to do."""
    with server(**named) as client:
        looking = agent(scene, Call(name, {"what": "sky"}, "call-1"), tools=client.list_tools_sync())
        with pytest.raises(EventLoopException, match=why) as raised:
            await looking.invoke_async("go")
        assert isinstance(raised.value.__cause__, ConfigurationError)
    assert why in caplog.text
    assert scene.logged() == []
