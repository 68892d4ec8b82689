"""Going on with a stopped run: what is asked, what the model is shown again, and what cannot be a decision."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state import replace_values
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.hooks.human_in_the_loop import ToolExecutionDecision
from haystack.tools import create_tool_from_function
from support.frameworks.harness import Call, Scene
from support.frameworks.haystack import called, read, stored, tools_of

from toolgate import ConfigurationError
from toolgate_integrations.haystack import STOPPED, aresume, guard_hooks, held_calls, resume

LOOK = Call("look", {"what": "sky"}, "call-look")
PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
MORE = Call("pay", {"to": "ann", "amount": 70}, "call-more")
GO = [ChatMessage.from_user("go")]


def agent(scene: Scene, *said: Any, on_hold: Any = "pause", **options: Any) -> Agent:
    """A guarded agent whose model says these things, then "done"."""
    given = {"tools": tools_of(scene), "hooks": guard_hooks(scene.guard, on_hold=on_hold), **options}
    return Agent(chat_generator=MockChatGenerator(responses=[*said, "done"]), **given)


def test_what_the_model_is_shown(scene: Scene) -> None:
    """The model reads its prompt, text and calls once, the arguments that were approved, and each result once."""
    prompts = {"system_prompt": "Pay.", "user_prompt": "Pay {{ who }}.", "required_variables": ["who"]}
    said = called(LOOK, PAY)
    said.meta["usage"] = {"completion_tokens": 5}
    first = agent(scene, said, **prompts).run([], who="eve")
    [held] = held_calls(first["messages"])
    scene.approve(held.approval_id, context={"to": "eve", "amount": 25})
    last = resume(agent(scene, **prompts), stored(first["messages"]))
    roles = [each.role.value for each in last["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert read(last["messages"]) == {"call-look": "seen sky", "call-pay": "paid 25 to eve"}
    assert last["messages"][4].tool_calls[0].arguments == {"to": "eve", "amount": 25}
    assert last["messages"][4].text == "Let me see."
    assert first["token_usage"]["completion_tokens"] >= 5
    assert last["token_usage"].get("completion_tokens", 0) < 5


async def test_some_are_rejected_and_some_go_on(scene: Scene) -> None:
    """Of two calls that wait one is rejected where the agent is run, the other is asked about again."""
    first = agent(scene, called(PAY, MORE)).run(GO)
    pay, more = held_calls(first["messages"])
    scene.approve(more.approval_id)
    no = ToolExecutionDecision("pay", execute=False, tool_call_id="call-pay")
    last = await aresume(agent(scene), stored(first["messages"]), [no])
    assert scene.ran == [("pay", "ann", 70)]
    assert scene.status(pay.approval_id) == "cancelled"
    assert "rejected" in read(last["messages"])["call-pay"]
    assert scene.logged() == [("pay", "denied"), ("pay", "pending"), ("pay", "pending"), ("pay", "success")]


def test_a_call_without_an_id(scene: Scene) -> None:
    """Some models give their calls no ids: such a call is found again, and rejected by its tool's name."""
    nameless = ChatMessage.from_assistant(tool_calls=[replace(called(PAY).tool_calls[0], id=None)])
    first = agent(scene, nameless).run(GO)
    [held] = held_calls(first["messages"])
    still = resume(agent(scene), stored(first["messages"]))
    assert [each.approval_id for each in held_calls(still["messages"])] == [held.approval_id]
    no = ToolExecutionDecision("pay", execute=False, feedback="not eve")
    last = resume(agent(scene), stored(still["messages"]), [no])
    assert [each.result for message in last["messages"] for each in message.tool_call_results] == ["not eve"]
    assert (scene.ran, scene.status(held.approval_id)) == ([], "cancelled")


def test_the_state_of_the_run(scene: Scene) -> None:
    """What the run knew besides its messages is given to the resumed one, as to any."""

    def pay(to: str, amount: int, purse: int) -> str:
        """Pay somebody."""
        return scene.pay(to, purse - amount)

    options: dict[str, Any] = {
        "tools": [create_tool_from_function(pay, inputs_from_state={"purse": "purse"})],
        "state_schema": {"purse": {"type": int, "handler": replace_values}},
    }
    first = agent(scene, called(PAY), **options).run(GO, purse=100)
    scene.approve(held_calls(first["messages"])[0].approval_id)
    resume(agent(scene, **options), first["messages"], purse=first["purse"])
    assert scene.ran == [("pay", "eve", 60)]


def test_a_hold_in_the_last_step(scene: Scene) -> None:
    """A run that may take no further step says so; what waits is found all the same."""
    first = agent(scene, called(PAY), max_agent_steps=1).run(GO)
    assert first["exit_reason"] == "max_agent_steps"
    [held] = held_calls(first["messages"])
    scene.approve(held.approval_id)
    resume(agent(scene), first["messages"])
    assert scene.ran == [("pay", "eve", 40)]


def test_a_conversation_that_is_not_gone_on_with(scene: Scene) -> None:
    """Whoever goes on talking in place of resuming has a conversation in which the model reads that the call waits."""
    first = agent(scene, called(PAY)).run(GO)
    assert first["exit_reason"] == STOPPED
    last = agent(scene).run([*stored(first["messages"]), ChatMessage.from_user("never mind")])
    assert last["last_message"].text == "done"
    assert read(last["messages"])["call-pay"].startswith("Not done yet")
    assert scene.ran == []


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        (ToolExecutionDecision("pay", False), "matches 2 waiting calls"),
        (ToolExecutionDecision("pay", False, "call-other"), "'call-other'\\) matches 0 waiting calls"),
        (ToolExecutionDecision("look", False, "call-pay"), "matches 0 waiting calls"),
        (
            ToolExecutionDecision("pay", True, "call-pay", final_tool_params={"to": "eve", "amount": 1}),
            "changes its arguments",
        ),
        (True, "is not a decision"),
    ],
)
def test_what_is_no_decision(scene: Scene, decision: Any, why: str) -> None:
    """A decision is about one call that waits, and changes none; nothing runs for any other."""
    first = agent(scene, called(PAY, MORE)).run(GO)
    with pytest.raises(ConfigurationError, match=why):
        resume(agent(scene), first["messages"], [decision])
    assert scene.ran == []


def test_what_cannot_be_resumed(scene: Scene) -> None:
    """Neither an agent that is not guarded nor a conversation in which nothing waits can be gone on with."""
    with pytest.raises(ConfigurationError, match="these messages contain no tool call that waits"):
        resume(agent(scene), GO)
    with pytest.raises(ConfigurationError, match="guard_hooks"):
        resume(agent(scene, hooks=None), GO)


def test_an_equal_call_earlier_in_the_conversation(scene: Scene) -> None:
    """What was made and answered before stays in the conversation as it was, though its call is the same."""
    first = agent(scene, called(PAY)).run(GO)
    scene.approve(held_calls(first["messages"])[0].approval_id)
    paid = resume(agent(scene), first["messages"])
    again = agent(scene, called(PAY)).run([*paid["messages"], *GO])
    scene.approve(held_calls(again["messages"])[0].approval_id)
    last = resume(agent(scene), stored(again["messages"]))
    roles = [each.role.value for each in last["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant"] * 2
    assert scene.ran == [("pay", "eve", 40)] * 2


@pytest.mark.parametrize("change", ["arguments", "id", "run", "tool"])
def test_a_conversation_that_was_changed(scene: Scene, change: str) -> None:
    """An approval lets through nothing but the call it was given for."""
    scene.owner.permit(scene.agent_id, "tools.drop", requires_approval=True)
    first = agent(scene, called(PAY)).run(GO)
    [held] = held_calls(first["messages"])
    scene.approve(held.approval_id)
    text = json.dumps([each.to_dict() for each in first["messages"]])
    old, new = {
        "arguments": ('"amount": 40', '"amount": 4000'),
        "id": ("call-pay", "call-other"),
        "run": (str(held.run_id), "run-other"),
        "tool": (
            '"tool_name": "pay", "arguments": {"to": "eve", "amount": 40}',
            '"tool_name": "drop", "arguments": {"table": "users"}',
        ),
    }[change]
    assert old in text
    changed = [ChatMessage.from_dict(each) for each in json.loads(text.replace(old, new))]
    resume(agent(scene), changed)
    assert scene.ran == []


async def test_resumed_twice_at_once(scene: Scene) -> None:
    """Two that go on with the same messages at once run the call once."""
    first = await agent(scene, called(PAY)).run_async(GO)
    scene.approve(held_calls(first["messages"])[0].approval_id)
    kept = stored(first["messages"])
    await asyncio.gather(*(aresume(agent(scene), kept) for _ in range(3)))
    await aresume(agent(scene), kept)
    assert scene.ran == [("pay", "eve", 40)]
