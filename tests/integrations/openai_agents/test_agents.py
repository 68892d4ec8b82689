"""Several agents: handed off to, as tools, under their own identities, and in clones; and the tools of MCP servers."""

import sys
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner, function_tool, handoff
from agents.agent import MCPConfig
from agents.mcp import MCPServerStdio
from support.frameworks.harness import Scene
from support.frameworks.openai_agents import Scripted, called, outputs, said

from toolgate import ConfigurationError
from toolgate_integrations.openai_agents import GuardedAgent, aresume, guard_agent

LOOK = called("look", {"what": "sky"}, "call-look")
DROP = called("drop", {"table": "users"}, "call-drop")
PAY = called("pay", {"to": "eve", "amount": 40}, "call-pay")
ASK = called("ask", {"input": "pay eve"}, "call-ask")
SERVER = Path(__file__).parents[2] / "support" / "frameworks" / "bank.py"


def clerk(scene: Scene, *turns: Any) -> Agent[Any]:
    tools = [function_tool(each) for each in scene.tools.values()]
    return Agent("clerk", model=Scripted(*turns), tools=tools)


def actors(scene: Scene) -> list[tuple[str, str, str]]:
    assert scene.guard.flush(30)
    names = {each["id"]: each["name"] for each in scene.owner.http.get("/api/agents").json()}
    entries = scene.owner.entries()
    return sorted(
        (names[each["agent_id"]], each["action"].split(".")[-1], each["status"]) for each in entries
    )


@pytest.mark.parametrize("how", ["agent", "handoff", "round"])
async def test_who_is_handed_off_to_is_guarded(scene: Scene, how: str) -> None:
    """The agent handed off to is guarded and acts by its own id, also where the two hand off to each other."""
    other = scene.owner.agent("clerk-id")
    scene.owner.permit(other, "tools.drop")
    inner = clerk(scene, [DROP, LOOK])
    to = called("transfer_to_clerk", {}, "call-transfer")
    outer = Agent("boss", model=Scripted([to]), handoffs=[handoff(inner) if how == "handoff" else inner])
    if how == "round":
        inner.handoffs.append(outer)
    agent = guard_agent(outer, scene.guard, agents={"clerk": other})
    result = await Runner.run(agent, "go")
    assert isinstance(result.last_agent, GuardedAgent)
    assert scene.ran == [("drop", "users")]
    assert "is blocked" in outputs(result)["call-look"]
    assert actors(scene) == [("clerk-id", "drop", "success"), ("clerk-id", "look", "denied")]


async def test_a_paused_run_of_who_was_handed_off_to(scene: Scene) -> None:
    """A held call of the other agent is found again in the state as JSON, in another process."""

    def made() -> GuardedAgent:
        inner = clerk(scene, [PAY])
        to = called("transfer_to_clerk", {}, "call-transfer")
        return guard_agent(Agent("boss", model=Scripted([to]), handoffs=[inner]), scene.guard)

    state = (await Runner.run(made(), "go")).to_state().to_json()
    again = made()
    inner: Any = again.handoffs[0]
    inner.model.turns.clear()
    result = await aresume(again, state)
    assert [each.call_id for each in result.interruptions] == ["call-pay"]
    (request,) = scene.owner.http.get("/api/approvals").json()
    scene.approve(request["id"])
    result = await aresume(again, result.to_state().to_json())
    assert scene.ran == [("pay", "eve", 40)]
    assert result.final_output == "done"


def boss(scene: Scene, inner: Agent[Any], *turns: Any, **options: Any) -> GuardedAgent:
    tool = inner.as_tool("ask", "Ask the clerk.")
    return guard_agent(Agent("boss", model=Scripted(*turns), tools=[tool]), scene.guard, **options)


async def test_an_agent_as_a_tool(scene: Scene) -> None:
    """The tool is asked for as `tools.ask`, and the tools of its agent each for themselves."""
    agent = boss(scene, clerk(scene, [LOOK]), [ASK])
    assert "is blocked" in outputs(await Runner.run(agent, "go"))["call-ask"]
    scene.owner.permit(scene.agent_id, "tools.ask")
    agent = boss(scene, clerk(scene, [LOOK, DROP], [said("looked")]), [ASK])
    assert outputs(await Runner.run(agent, "go"))["call-ask"] == "looked"
    assert scene.ran == [("look", "sky")]
    assert scene.logged() == [("ask", "denied"), ("ask", "success"), ("drop", "denied"), ("look", "success")]


@pytest.mark.parametrize("outer_is_held", [False, True])
@pytest.mark.parametrize("end", ["approve", "deny"])
async def test_an_agent_as_a_tool_that_pauses(scene: Scene, outer_is_held: bool, end: str) -> None:
    """A held call of the inner agent pauses the outer run; it goes on from JSON, and is one call all the way."""
    scene.owner.permit(scene.agent_id, "tools.ask", requires_approval=outer_is_held)
    # Old versions keep an inner run by the call's id, for the whole process: here it is a new one each time.
    call_id = f"call-{scene.agent_id}"
    ask = called("ask", {"input": "pay eve"}, call_id)
    agent = boss(scene, clerk(scene, [PAY], [said("well")]), [ask])
    result = await Runner.run(agent, "go")
    if outer_is_held:
        assert [each.call_id for each in result.interruptions] == [call_id]
        scene.approve(scene.owner.http.get("/api/approvals").json()[0]["id"])
        result = await aresume(agent, result.to_state())
    assert [each.call_id for each in result.interruptions] == ["call-pay"]
    assert scene.ran == []
    (request,) = [
        each for each in scene.owner.http.get("/api/approvals").json() if each["action"] == "tools.pay"
    ]
    if end == "approve":
        scene.approve(request["id"])
    else:
        scene.deny(request["id"], "not eve")
    fresh = boss(scene, clerk(scene, [said("well")]))
    result = await aresume(fresh, result.to_state().to_string())
    assert outputs(result)[call_id] == "well"
    assert scene.ran == ([("pay", "eve", 40)] if end == "approve" else [])
    logged = scene.logged()
    # Once that it waits, if it does, and once that it paused.
    pendings = [("ask", "pending")] * (1 + outer_is_held)
    assert [each for each in logged if each[0] == "ask"] == [*pendings, ("ask", "success")]
    assert ("pay", "success" if end == "approve" else "denied") in logged
    assert scene.requests() == 1 + outer_is_held


async def test_inner_agents_act_by_their_own_ids_before_and_after_a_pause(scene: Scene) -> None:
    """The agent that is a tool acts by its own name's id, or the guard's, and never by the outer agent's."""
    chief = scene.owner.agent("chief")
    scene.owner.permit(chief, "tools.ask")
    agent = boss(scene, clerk(scene, [PAY]), [ASK], agents={"boss": chief})
    result = await Runner.run(agent, "go")
    (request,) = scene.owner.http.get("/api/approvals").json()
    scene.approve(request["id"])
    await aresume(agent, result.to_state())
    assert scene.ran == [("pay", "eve", 40)]
    assert actors(scene) == [
        ("bot", "pay", "pending"),
        ("bot", "pay", "success"),
        ("chief", "ask", "pending"),
        ("chief", "ask", "success"),
    ]


async def test_clones_and_later_tools_are_guarded(scene: Scene) -> None:
    """What is added to a guarded agent, or given to its clone, is asked for; an agent as it was is not touched."""
    bare = clerk(scene, [DROP])
    agent = guard_agent(Agent("boss", model=Scripted([DROP])), scene.guard)
    agent.tools.append(function_tool(scene.drop))
    assert "is blocked" in outputs(await Runner.run(agent, "go"))["call-drop"]
    clone: Any = agent.clone(name="clone", tools=[function_tool(scene.drop)], model=Scripted([DROP]))
    assert "is blocked" in outputs(await Runner.run(clone, "go"))["call-drop"]
    guard_agent(bare, scene.guard)
    assert outputs(await Runner.run(bare, "go"))["call-drop"] == "dropped users"
    agent.handoffs.append(bare)
    with pytest.raises(ConfigurationError, match="'clerk' after it was guarded"):
        await Runner.run(agent, "go")


async def test_a_kind_of_agent_of_the_applications_own(scene: Scene) -> None:
    """A subclass stays what it is, and is guarded."""

    class Polite(Agent[Any]):
        async def get_system_prompt(self, run_context: Any) -> str:
            return "please"

    agent = guard_agent(
        Polite("clerk", model=Scripted([DROP]), tools=[function_tool(scene.drop)]), scene.guard
    )
    assert isinstance(agent, Polite)
    assert isinstance(agent, GuardedAgent)
    assert await agent.get_system_prompt(None) == "please"
    assert "is blocked" in outputs(await Runner.run(agent, "go"))["call-drop"]


# The Agents SDK itself reads the answers of MCP servers by a name that is on its way out.
@pytest.mark.filterwarnings("ignore:Accessing `CallToolResult.isError` is deprecated")
# The oldest versions know no prefixes.
@pytest.mark.parametrize(
    "prefixed", sorted({False, "include_server_in_tool_names" in MCPConfig.__annotations__})
)
async def test_tools_of_an_mcp_server(scene: Scene, prefixed: bool) -> None:
    """They are `<server>.<tool>` by the name given here; an answer marked as an error is logged as failed."""
    for tool, fields in (("look", {}), ("burn", {}), ("pay", {"requires_approval": True})):
        scene.owner.permit(scene.agent_id, f"bank.{tool}", **fields)
    before = "mcp_bank__" if prefixed else ""
    turn = [
        called(f"{before}look", {"what": "sky"}, "call-look"),
        called(f"{before}burn", {"what": "ice"}, "call-burn"),
        called(f"{before}drop", {"table": "users"}, "call-drop"),
        called(f"{before}pay", {"to": "eve", "amount": 40}, "call-pay"),
    ]
    config: Any = {"include_server_in_tool_names": prefixed}
    params: Any = {"command": sys.executable, "args": ["-P", str(SERVER)]}
    async with MCPServerStdio(params=params, name="bank", client_session_timeout_seconds=60) as server:
        agent = guard_agent(
            Agent(
                "clerk",
                model=Scripted(turn),
                mcp_servers=[server],
                mcp_config=config,
            ),
            scene.guard,
        )
        result = await Runner.run(agent, "go")
        assert [each.call_id for each in result.interruptions] == ["call-pay"]
        (request,) = scene.owner.http.get("/api/approvals").json()
        assert request["action"] == "bank.pay"
        scene.approve(request["id"])
        read = outputs(await aresume(agent, result.to_state()))
    assert "seen sky" in read["call-look"], scene.owner.entries()
    assert "paid 40 to eve" in read["call-pay"]
    assert "Error executing tool burn" in read["call-burn"]
    assert "is blocked" in read["call-drop"]
    assert scene.logged() == [
        ("burn", "failed"),
        ("drop", "denied"),
        ("look", "success"),
        ("pay", "pending"),
        ("pay", "success"),
    ]
