"""What becomes of one tool: its arguments, its errors, its own wishes, and a function that is guarded itself."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from agents import Agent, ApplyPatchTool, FunctionTool, RunContextWrapper, Runner, function_tool
from pydantic import BaseModel
from support.frameworks.harness import Scene
from support.frameworks.openai_agents import Scripted, called, outputs

from toolgate import ConfigurationError
from toolgate_integrations.openai_agents import GuardedAgent, aresume, guard_agent


class Item(BaseModel):
    sku: str


def noted(text: str, tone: str = "kind") -> str:
    """Write."""
    return f"{text}, {tone}"


def weighed(grams: float) -> str:
    """Weigh."""
    return f"{grams} g"


def dated(day: date) -> str:
    """Date."""
    return f"{day:%d.%m.}"


def packed(item: Item) -> str:
    """Pack."""
    return item.sku


def agent_of(scene: Scene, *calls: Any, tools: list[Any], **options: Any) -> GuardedAgent:
    return guard_agent(Agent("treasurer", model=Scripted(list(calls)), tools=tools), scene.guard, **options)


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize(
    ("function", "arguments", "told"),
    [
        (noted, {"text": "hi"}, "hi, kind"),
        (weighed, {"grams": 5}, "5.0 g"),
        (dated, {"day": "2026-01-02"}, "02.01."),
        (packed, {"item": {"sku": "a-1"}}, "a-1"),
    ],
)
async def test_arguments_the_sdk_would_hold_by_itself(
    scene: Scene, function: Callable[..., str], arguments: dict[str, Any], told: str, held: bool
) -> None:
    """Defaults, an int for a float, a date and a model are asked about like all others, and run with their types."""
    scene.owner.permit(scene.agent_id, f"tools.{function.__name__}", requires_approval=held)
    tool = function_tool(function, strict_mode=function is not noted)
    agent = agent_of(scene, called(function.__name__, arguments, "call-1"), tools=[tool])
    result = await Runner.run(agent, "go")
    assert bool(result.interruptions) is held
    if held:
        (request,) = scene.owner.http.get("/api/approvals").json()
        scene.approve(request["id"])
        result = await aresume(agent, result.to_state())
    assert outputs(result) == {"call-1": told}


@pytest.mark.parametrize(
    "text",
    [
        '{"to": ',
        "[]",
        "3",
        '{"to": "ann", "to": "bob"}',
        '{"to": {"a": 1, "a": 2}}',
        '{"to": NaN}',
        '{"to": 1e400}',
    ],
)
@pytest.mark.parametrize("on_hold", ["pause", "notify_model"])
async def test_arguments_nobody_can_read(scene: Scene, text: str, on_hold: Any) -> None:
    """Text that is no JSON object never reaches the tool: the model reads so, and the log says it was refused."""
    agent = agent_of(
        scene, called("look", text, "call-1"), tools=[function_tool(scene.look)], on_hold=on_hold
    )
    result = await Runner.run(agent, "go")
    if result.interruptions:
        result = await aresume(agent, result.to_state())
    assert scene.ran == []
    assert "not a JSON object" in outputs(result)["call-1"]
    assert result.final_output == "done"
    assert scene.logged() == [("look", "denied")]


@pytest.mark.parametrize("how", ["default", "own", "none"])
async def test_an_error_the_sdk_swallows_is_logged(scene: Scene, how: str) -> None:
    """A tool that raises is logged as failed with what it raised, and the model reads what it would without the guard."""
    options: dict[str, Any] = {
        "default": {},
        "own": {"failure_error_function": lambda *_: "no luck"},
        "none": {"failure_error_function": None},
    }[how]
    tool = function_tool(scene.burn, **options)
    agent = agent_of(scene, called("burn", {"what": "ice"}, "call-1"), tools=[tool])
    if how == "none":
        with pytest.raises(Exception, match="ice does not burn"):
            await Runner.run(agent, "go")
    else:
        read = outputs(await Runner.run(agent, "go"))["call-1"]
        bare = Agent("bare", model=Scripted([called("burn", {"what": "ice"}, "call-1")]), tools=[tool])
        assert read == outputs(await Runner.run(bare, "go"))["call-1"]
        scene.ran.pop()
    assert scene.ran == [("burn", "ice")]
    assert scene.logged() == [("burn", "failed")]
    assert "ice does not burn" in str(scene.owner.entries()[0]["context"])


@pytest.mark.parametrize(
    ("text", "received"),
    [
        ('{"amount": 1.0000000000000000001}', '{"amount": 1.0}'),
        ('{"amount":\t5000 }', '{"amount": 5000}'),
        ("{}", '{"amount": 7}'),
        (r'{"amount": "\u0031"}', '{"amount": "1"}'),
    ],
)
async def test_a_tool_that_reads_text_receives_what_was_asked_about(
    scene: Scene, text: str, received: str
) -> None:
    seen: list[str] = []

    async def invoke(_: Any, text: str) -> str:
        seen.append(text)
        return "done"

    schema = {"type": "object", "properties": {"amount": {"type": "number", "default": 7}}}
    scene.owner.permit(scene.agent_id, "tools.price")
    tool = FunctionTool("price", "Price.", schema, invoke, strict_json_schema=False)
    agent = agent_of(scene, called("price", text, "call-1"), tools=[tool])
    assert outputs(await Runner.run(agent, "go")) == {"call-1": "done"}
    assert seen == [received]


async def test_a_tool_made_by_hand_is_guarded(scene: Scene) -> None:
    """A `FunctionTool` around any coroutine is asked for, and what it raises is logged and ends the run."""
    seen: list[str] = []

    async def invoke(_: Any, text: str) -> str:
        seen.append(text)
        raise RuntimeError("no")

    tool = FunctionTool(
        "look", "Look.", {"type": "object", "properties": {}}, invoke, strict_json_schema=False
    )
    agent = agent_of(scene, called("look", {"what": "sky"}, "call-1"), tools=[tool])
    with pytest.raises(Exception, match="no"):
        await Runner.run(agent, "go")
    assert seen == ['{"what": "sky"}']
    assert scene.logged() == [("look", "failed")]


async def test_whoever_made_the_tool_is_asked_as_well(scene: Scene) -> None:
    """A tool's own `needs_approval` still pauses the run, and the gateway's yes does not answer it."""
    tool = function_tool(scene.look, needs_approval=True)
    agent = agent_of(scene, called("look", {"what": "sky"}, "call-1"), tools=[tool])
    result = await aresume(agent, (await Runner.run(agent, "go")).to_state())
    assert scene.ran == []
    (item,) = result.interruptions
    state = result.to_state()
    state.approve(item)
    await aresume(agent, state)
    assert scene.ran == [("look", "sky")]
    assert scene.logged() == [("look", "success")]


@pytest.mark.parametrize("tool", ["look", "drop", "burn"])
async def test_a_function_that_is_guarded_itself_is_asked_for_once(scene: Scene, tool: str) -> None:
    """`@guarded` under `function_tool` names the action, asks and records alone."""
    function = function_tool(scene.guard.guarded(f"tools.{tool}")(scene.tools[tool]), name_override="it")
    given = {"table": "users"} if tool == "drop" else {"what": "sky"}
    agent = agent_of(scene, called("it", given, "call-1"), tools=[function])
    result = await Runner.run(agent, "go")
    expected = {"look": "success", "drop": "denied", "burn": "failed"}[tool]
    assert scene.logged() == [(tool, expected)]
    assert scene.ran == ([] if tool == "drop" else [(tool, "sky")])
    if tool == "drop":
        assert "is blocked" in outputs(result)["call-1"]


async def test_a_guarded_function_that_is_held_tells_the_model(scene: Scene) -> None:
    """What such a function asks only its own call knows: the run goes on, and the same call passes once approved."""
    function = function_tool(scene.guard.guarded("tools.pay")(scene.pay))
    given = {"to": "eve", "amount": 40}
    agent = agent_of(scene, called("pay", given, "call-1"), tools=[function])
    result = await Runner.run(agent, "go")
    assert "waits for a person" in outputs(result)["call-1"]
    (request,) = scene.owner.http.get("/api/approvals").json()
    scene.approve(request["id"])
    agent.model.turns.append([called("pay", given, "call-2")])
    assert outputs(await Runner.run(agent, "go"))["call-2"] == "paid 40 to eve"
    assert scene.ran == [("pay", "eve", 40)]


async def test_the_context_reaches_the_tool(scene: Scene) -> None:
    """The SDK's own context is passed on, and is no part of what the gateway is asked."""

    def look(context: RunContextWrapper[str], what: str) -> str:
        """Look."""
        return f"{context.context} sees {what}"

    agent = agent_of(scene, called("look", {"what": "sky"}, "call-1"), tools=[function_tool(look)])
    assert outputs(await Runner.run(agent, "go", context="ann"))["call-1"] == "ann sees sky"
    assert scene.guard.flush(30)
    (entry,) = scene.owner.entries()
    assert entry["context"]["what"] == "sky"
    assert "context" not in entry["context"]


async def test_told_to_ask_again(scene: Scene) -> None:
    """With `tell` the run goes on, and the model's next call, by another id, passes by the approval."""
    given = {"to": "eve", "amount": 40}
    agent = agent_of(
        scene, called("pay", given, "call-1"), tools=[function_tool(scene.pay)], on_hold="notify_model"
    )
    result = await Runner.run(agent, "go")
    assert "waits for a person" in outputs(result)["call-1"]
    (request,) = scene.owner.http.get("/api/approvals").json()
    scene.approve(request["id"])
    agent.model.turns.append([called("pay", given, "call-2")])
    assert outputs(await Runner.run(agent, "go"))["call-2"] == "paid 40 to eve"
    assert scene.requests() == 1


async def test_a_tool_by_another_action(scene: Scene) -> None:
    """What `tool_actions` says of a tool is what the gateway is asked."""
    agent = agent_of(
        scene,
        called("drop", {"table": "users"}, "call-1"),
        tools=[function_tool(scene.drop)],
        tool_actions={"drop": "tools.look"},
    )
    assert outputs(await Runner.run(agent, "go"))["call-1"] == "dropped users"
    assert scene.logged() == [("look", "success")]


@pytest.mark.parametrize(
    ("agent", "options", "words"),
    [
        ("treasurer", {}, "pass an agents.Agent"),
        (Agent("a"), {"on_hold": "later"}, "'later'"),
        (Agent("a", tools=[ApplyPatchTool(editor=object())]), {}, "ApplyPatchTool, which cannot be guarded"),
    ],
)
def test_what_cannot_be_guarded_is_refused(agent: Any, options: Any, words: str) -> None:
    """No agent, an unknown word, and a tool that runs here past every hook are told of at once."""
    with pytest.raises(ConfigurationError, match=words):
        guard_agent(agent, **options)
