"""Going on with a paused run: the gateway's decision counts, and the state keeps none of its own."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from agents import Agent, Runner, RunState, function_tool
from support.frameworks.harness import Scene
from support.frameworks.openai_agents import Scripted, called, outputs
from support.gateway import LiveGateway

from toolgate import ApprovalPending, ConfigurationError, GatewayUnavailable
from toolgate_integrations.openai_agents import GuardedAgent, aresume, guard_agent, settle

PAY = called("pay", {"to": "eve", "amount": 40}, "call-pay")
MORE = called("pay", {"to": "ann", "amount": 70}, "call-more")


def treasurer(scene: Scene, *calls: Any, **options: Any) -> GuardedAgent:
    turns = [list(calls)] if calls else []
    tools = [function_tool(each) for each in scene.tools.values()]
    return guard_agent(Agent("treasurer", model=Scripted(*turns), tools=tools), scene.guard, **options)


async def paused(scene: Scene, *calls: Any) -> tuple[GuardedAgent, RunState[Any, Any]]:
    agent = treasurer(scene, *calls)
    return agent, (await Runner.run(agent, "go")).to_state()


async def test_approved_in_the_framework_alone(scene: Scene) -> None:
    """A call that only the framework approved does not run: the model reads that it is still pending."""
    agent, state = await paused(scene, PAY)
    (item,) = state.get_interruptions()
    state.approve(item, always_approve=True)
    result = await Runner.run(agent, state)
    assert scene.ran == []
    (request,) = scene.owner.http.get("/api/approvals").json()
    assert f"is not approved (approval {request['id']})" in outputs(result)["call-pay"]
    assert scene.logged() == [("pay", "pending")]


async def test_resume_refuses_what_only_the_framework_approved(scene: Scene) -> None:
    """`resume` says which approval is missing, and goes on by it once the gateway has decided."""
    agent, state = await paused(scene, PAY)
    state.approve(state.get_interruptions()[0])
    with pytest.raises(ApprovalPending) as caught:
        await aresume(agent, state)
    assert scene.ran == []
    scene.approve(caught.value.approval_id)
    await aresume(agent, state)
    assert scene.ran == [("pay", "eve", 40)]


async def test_settle_says_what_waits(scene: Scene) -> None:
    """Decided calls go on, undecided ones stay, each with its approval."""
    agent, state = await paused(scene, PAY, MORE)
    before = (await settle(agent, state)).waiting
    assert set(before) == {"call-pay", "call-more"}
    scene.approve(before["call-more"])
    settled = await settle(agent, state.to_string())
    assert dict(settled.waiting) == {"call-pay": before["call-pay"]}
    result = await Runner.run(agent, settled.state)
    assert scene.ran == [("pay", "ann", 70)]
    assert [each.call_id for each in result.interruptions] == ["call-pay"]


@pytest.mark.parametrize("how", ["cancelled", "denied twice over"])
async def test_a_request_that_is_over(scene: Scene, how: str) -> None:
    """A request that was withdrawn or declined lets nothing run, and is refused in the state; one entry says so."""
    agent, state = await paused(scene, PAY)
    (approval_id,) = (await settle(agent, state)).waiting.values()
    if how == "cancelled":
        scene.guard.cancel(approval_id)
    else:
        scene.deny(approval_id, "no")
    text = state.to_string()
    for _ in range(2):
        result = await aresume(agent, text)
        assert "Not done" in outputs(result)["call-pay"]
    assert scene.ran == []
    assert scene.requests() == 1
    assert scene.logged() == [("pay", "denied"), ("pay", "pending")]


async def test_a_rejection_withdraws_what_an_approver_made_of_it(scene: Scene) -> None:
    """Rejected in the framework, nothing of the call is left to be decided."""
    agent, state = await paused(scene, PAY, MORE)
    waiting = (await settle(agent, state)).waiting
    for item in state.get_interruptions():
        if item.call_id == "call-pay":
            state.reject(item, rejection_message="not today")
    result = await aresume(agent, state)
    assert [each.call_id for each in result.interruptions] == ["call-more"]
    assert scene.status(waiting["call-pay"]) == "cancelled"
    assert scene.status(waiting["call-more"]) == "pending"
    assert outputs(result)["call-pay"] == "not today"


async def test_a_rejection_that_only_the_bare_runner_hears_of(scene: Scene) -> None:
    """The call does not run; nothing of the plugin is called, so its request stays until `resume` is told, or it runs out."""
    agent, state = await paused(scene, PAY)
    (approval_id,) = (await settle(agent, state)).waiting.values()
    state.reject(state.get_interruptions()[0])
    text = state.to_string()
    await Runner.run(agent, await RunState.from_string(agent, text))
    assert scene.ran == []
    assert (scene.status(approval_id), scene.logged()) == ("pending", [("pay", "pending")])
    await aresume(agent, text)
    assert scene.ran == []
    assert (scene.status(approval_id), scene.logged()) == (
        "cancelled",
        [("pay", "denied"), ("pay", "pending")],
    )


async def test_an_outage_leaves_the_state_as_it_was(scene: Scene, live_gateway: LiveGateway) -> None:
    """Without a gateway `resume` raises and nothing runs; afterwards it goes on."""
    agent, state = await paused(scene, PAY, MORE)
    waiting = (await settle(agent, state)).waiting
    scene.approve(waiting["call-pay"])
    before = state.to_string()
    live_gateway.stop()
    try:
        with pytest.raises(GatewayUnavailable):
            await aresume(agent, state)
    finally:
        live_gateway.start()
    assert state.to_string() == before
    await aresume(agent, state)
    assert scene.ran == [("pay", "eve", 40)]


async def test_waiting_inside(scene: Scene) -> None:
    """With `wait` the call waits for the person, beside calls that do not."""
    look = called("look", {"what": "sky"}, "call-look")
    agent = treasurer(scene, PAY, look, on_hold="wait")
    running = asyncio.create_task(Runner.run(agent, "go"))
    while not (requests := await asyncio.to_thread(scene.requests)):
        assert not running.done()
    assert requests == 1
    (request,) = scene.owner.http.get("/api/approvals").json()
    scene.approve(request["id"])
    read = outputs(await running)
    assert (read["call-pay"], read["call-look"]) == ("paid 40 to eve", "seen sky")


async def test_the_state_bears_no_secret(scene: Scene) -> None:
    """Neither the key nor anything else of the guard is in the state."""
    _, state = await paused(scene, PAY)
    text = state.to_string()
    assert scene.owner.key not in text
    assert scene.owner.url not in text
    assert scene.agent_id not in text


async def test_the_state_of_another_kind_of_agent(scene: Scene) -> None:
    """A state that was read with an agent that is not guarded is refused, naming the agent."""
    agent, state = await paused(scene, PAY)
    bare = Agent("treasurer", tools=[function_tool(scene.pay)])
    foreign = await RunState.from_json(bare, state.to_json())
    with pytest.raises(ConfigurationError, match="'treasurer', which is not guarded"):
        await aresume(agent, foreign)
    assert scene.ran == []


def test_without_the_framework() -> None:
    """Where the framework is missing the import says so in one line, with what installs it."""
    script = """
import importlib.metadata as metadata, sys
there = metadata.version
def version(name):
    if name == "openai-agents":
        raise metadata.PackageNotFoundError(name)
    return there(name)
metadata.version = version
from toolgate_integrations.base import MissingFrameworkError
try:
    import toolgate_integrations.openai_agents
except MissingFrameworkError as error:
    print(error, "agents" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "'openai-agents' is not installed; pip install 'toolgate[openai-agents]' False\n"
    assert found.stderr == ""
