"""What pauses a run and what it is resumed with: the framework's answers wake it, and only the gateway lets a call run."""

import json
from typing import Any

import pytest
from pydantic_ai import (
    ApprovalRequired,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    ToolApproved,
    ToolDenied,
)
from pydantic_ai.capabilities import HandleDeferredToolCalls
from support.frameworks.harness import Call, Scene
from support.frameworks.pydantic_ai import agent, read, resumed

from toolgate import ConfigurationError
from toolgate_integrations import pydantic_ai as plugin
from toolgate_integrations.pydantic_ai import GuardCapability

PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
MORE = Call("pay", {"to": "ann", "amount": 70}, "call-more")
LOOK = Call("look", {"what": "sky"}, "call-look")
DROP = Call("drop", {"table": "users"}, "call-drop")


async def test_what_is_deferred_names_its_approval(scene: Scene) -> None:
    """The metadata of a held call is enough to find, show and decide its request, and is JSON."""
    result = await agent(scene, PAY).run("go")
    [said] = json.loads(json.dumps(result.output.metadata)).values()
    assert said["action"] == "tools.pay"
    assert scene.status(said["approval_id"]) == "pending"
    assert said["reason"]


@pytest.mark.parametrize("denies", [True, False])
async def test_a_refusal_is_the_frameworks_own(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, denies: bool
) -> None:
    """What did not run is a call that was denied, not one that succeeded in saying so; also where no hook can deny."""
    monkeypatch.setattr(plugin, "_DENIES", denies)
    result = await agent(scene, DROP).run("go")
    outcome, text = read(result)["call-drop"]
    assert (outcome, text.startswith("Not done")) == ("denied", True)


async def test_other_arguments_need_an_approval_of_their_own(scene: Scene) -> None:
    """Arguments put in by whoever resumes were not what the person approved."""
    paying = agent(scene, PAY)
    first = await paying.run("go")
    approval_id = first.output.metadata["call-pay"]["approval_id"]
    scene.approve(approval_id)
    again = await resumed(paying, first, pay=ToolApproved(override_args={"to": "mallory", "amount": 9000}))
    assert scene.ran == []
    assert again.output.metadata["call-pay"]["approval_id"] != approval_id


async def test_a_tool_that_requires_approval_anyway(scene: Scene) -> None:
    """The framework pauses first; approved there it is still the gateway that decides."""
    paying = agent(scene, PAY, DROP, tools=[])
    for tool in ("pay", "drop"):
        paying.tool_plain(requires_approval=True)(scene.tools[tool])
    first = await paying.run("go")
    assert (first.output.metadata, scene.requests()) == ({}, 0)
    second = await resumed(paying, first, pay=True, drop=True)
    assert scene.ran == []
    assert "blocked" in read(second)["call-drop"][1]
    scene.approve(second.output.metadata["call-pay"]["approval_id"])
    last = await resumed(paying, second, pay=True)
    assert scene.ran == [("pay", "eve", 40)]
    assert last.output == "done"


async def test_a_run_that_cannot_pause_says_so(scene: Scene) -> None:
    """Without DeferredToolRequests a held call is a clear error, and its request does not stay behind."""
    with pytest.raises(ConfigurationError, match=r"add DeferredToolRequests .*on_hold='wait'"):
        await agent(scene, LOOK, PAY, output_type=str).run("go")
    assert [each for each in scene.ran if each[0] == "pay"] == []
    [request] = scene.owner.http.get("/api/approvals").json()
    assert request["status"] == "cancelled"


async def test_an_error_of_the_run_stays_what_it_was(scene: Scene) -> None:
    """Only the framework's complaint about a held call is put into other words."""

    def stop(ctx: RunContext[Any]) -> str:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await agent(scene, PAY, LOOK, tools=[scene.pay, stop], output_type=str, instructions=stop).run("go")


async def test_rejected_beside_one_that_waits(scene: Scene) -> None:
    """A rejection counts at once, also where the run pauses again for another call; and it counts once."""
    paying = agent(scene, PAY, MORE)
    first = await paying.run("go")
    ids = {name: said["approval_id"] for name, said in first.output.metadata.items()}
    second = await resumed(paying, first, pay=ToolDenied("not eve"), more=True)
    assert list(second.output.metadata) == ["call-more"]
    assert scene.status(ids["call-pay"]) == "cancelled"
    scene.approve(ids["call-more"])
    last = await resumed(paying, second, more=True)
    assert last.output == "done"
    assert read(last)["call-pay"] == ("denied", "not eve")
    assert scene.ran == [("pay", "ann", 70)]
    expected = [("pay", "denied"), ("pay", "pending"), ("pay", "pending"), ("pay", "success")]
    assert scene.logged() == expected


async def test_rejected_twice_is_one_log_entry(scene: Scene) -> None:
    """The same paused run resumed twice with a no makes one entry, which says why."""
    paying = agent(scene, PAY)
    first = await paying.run("go")
    await resumed(paying, first, pay=ToolDenied("not eve"))
    await resumed(paying, first, pay=False)
    assert scene.logged() == [("pay", "denied"), ("pay", "pending")]
    [denied] = [each for each in scene.owner.entries() if each["status"] == "denied"]
    assert denied["context"]["reason"] == "not eve"


async def test_rejected_while_no_gateway_answers(scene: Scene, live_gateway: Any) -> None:
    """A no needs no gateway: the run goes on, and the log says so later."""
    paying = agent(scene, PAY)
    first = await paying.run("go")
    live_gateway.stop()
    try:
        last = await resumed(paying, first, pay=False)
    finally:
        live_gateway.start()
    assert (last.output, scene.ran) == ("done", [])
    assert ("pay", "denied") in scene.logged()


@pytest.mark.parametrize("said", [True, False], ids=["approves", "rejects"])
async def test_a_handler_in_the_run_only_wakes(scene: Scene, said: bool) -> None:
    """The framework's own handler of deferred calls is believed when it says no, and asked about when it says yes."""

    def handle(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        return requests.build_results(approvals={each.tool_call_id: said for each in requests.approvals})

    capabilities = [GuardCapability(scene.guard), HandleDeferredToolCalls(handler=handle)]
    result = await agent(scene, PAY, capabilities=capabilities).run("go")
    assert scene.ran == []
    [request] = scene.owner.http.get("/api/approvals").json()
    if said:
        assert list(result.output.metadata) == ["call-pay"]
        assert (request["status"], scene.logged()) == ("pending", [("pay", "pending")])
    else:
        assert result.output == "done"
        assert (request["status"], scene.logged()) == ("cancelled", [("pay", "denied"), ("pay", "pending")])


async def test_a_pause_of_the_tools_own_is_no_failure(scene: Scene) -> None:
    """A tool that asks for approval by itself pauses; the log says pending, and success once it ran."""

    def look(ctx: RunContext[Any], what: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"asked": "by the tool"})
        return scene.look(what)

    looking = agent(scene, LOOK, tools=[look])
    first = await looking.run("go")
    assert first.output.metadata == {"call-look": {"asked": "by the tool"}}
    last = await resumed(looking, first, look=True)
    assert (last.output, scene.ran) == ("done", [("look", "sky")])
    assert scene.logged() == [("look", "pending"), ("look", "success")]
