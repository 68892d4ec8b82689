"""Runs: calls that the runner would carry out again, what is told outside of one, and going on after a pause."""

import asyncio
import datetime as dt
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic, beta_tool
from support.frameworks.anthropic import ASKED, async_tools_of, tools_of
from support.frameworks.harness import Call, Scene
from support.frameworks.messages_api import MessagesAPI

from toolgate import ConfigurationError
from toolgate_integrations.anthropic import AsyncGuardedRun, GuardedRun, guard_tools, resume

LOOK = Call("look", {"what": "sky"}, "call-look")
PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
MORE = Call("pay", {"to": "ann", "amount": 70}, "call-more")
BURN = Call("burn", {"what": "water"}, "call-burn")
GO = {"role": "user", "content": "go"}


def maker(client: Any, tools: list[Any], **options: Any) -> Callable[[list[Any]], Any]:
    """What makes runners with these tools."""
    return lambda messages: client.beta.messages.tool_runner(
        **ASKED, messages=messages, tools=tools, **options
    )


def stored(run: Any) -> Any:
    """The state of a paused run, as it comes back from a store."""
    return json.loads(json.dumps(run.state))


def test_messages_that_are_added_meanwhile(scene: Scene, client: Anthropic, api: MessagesAPI) -> None:
    """A runner whose history is changed carries out the calls of its message again; a guarded run does not."""
    api.say([LOOK, BURN])
    runner = maker(client, guard_tools(tools_of(scene), scene.guard))([GO])
    for message in (run := GuardedRun(runner)):
        if message.stop_reason == "tool_use":
            results = runner.generate_tool_call_response()
            runner.append_messages(message, results)
    assert run.state is None
    assert scene.ran == [("look", "sky"), ("burn", "water")]
    assert api.read["call-burn"].is_error
    assert scene.logged() == [("burn", "failed"), ("look", "success")]


def test_a_message_that_was_cut_off(scene: Scene, client: Anthropic, api: MessagesAPI) -> None:
    """The calls of a message that is not finished are neither asked about nor carried out."""
    api.say([LOOK])
    answer = api.answer

    def cut_off(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        status, said = answer(body)
        return status, {**said, "stop_reason": "max_tokens"}

    api.answer = cut_off  # type: ignore[method-assign]  # what the model is cut off by
    run = GuardedRun(maker(client, guard_tools(tools_of(scene), scene.guard))([GO]))
    assert run.until_done().stop_reason == "max_tokens"
    assert (scene.ran, scene.logged()) == ([], [])


def test_a_loop_that_is_left_and_entered_again(scene: Scene, client: Anthropic, api: MessagesAPI) -> None:
    """Whoever leaves the loop at a message carries nothing out; gone on with, the run pauses as it would have."""
    api.say([LOOK, PAY])
    run = GuardedRun(maker(client, guard_tools(tools_of(scene), scene.guard))([GO]))
    for _ in run:
        break
    assert scene.ran == []
    assert run.until_done() is None
    assert [each.call_id for each in run.held] == ["call-pay"]
    assert scene.ran == [("look", "sky")]


def test_a_pause_late_in_a_conversation(scene: Scene, client: Anthropic, api: MessagesAPI) -> None:
    """The API keeps the conversation, and is sent what is new; the state of a paused run has all of it."""
    api.say([LOOK], [PAY])
    make = maker(client, guard_tools(tools_of(scene), scene.guard))
    run = GuardedRun(make([GO]))
    run.until_done()
    assert len(api.requests[-1]["messages"]) < 3
    state = stored(run)
    assert [each["role"] for each in state["messages"]] == ["user", "assistant", "user", "assistant"]
    scene.approve(run.held[0].approval_id)
    resumed = resume(state, guard_tools(tools_of(scene), scene.guard), make)
    assert resumed.until_done().content[0].text == "done"
    assert (resumed.run_id, scene.ran) == (run.run_id, [("look", "sky"), ("pay", "eve", 40)])


def test_some_decided_and_some_not(scene: Scene, client: Anthropic, api: MessagesAPI) -> None:
    """What is decided is carried out at once and kept; the run goes on when nothing waits any more."""
    api.say([PAY, MORE])
    tools = guard_tools(tools_of(scene), scene.guard)
    run = GuardedRun(maker(client, tools)([GO]))
    run.until_done()
    pay, more = run.held
    scene.approve(more.approval_id)
    again = resume(stored(run), tools, maker(client, tools))
    assert again.until_done() is None
    assert [each.approval_id for each in again.held] == [pay.approval_id]
    assert scene.ran == [("pay", "ann", 70)]
    last = resume(stored(again), tools, maker(client, tools), rejected={"call-pay": "not eve"})
    assert last.until_done().content[0].text == "done"
    assert {name: one.text for name, one in api.read.items()} == {
        "call-pay": "not eve",
        "call-more": "paid 70 to ann",
    }
    assert scene.status(pay.approval_id) == "cancelled"


def test_calls_held_by_the_reader_of_a_stream(scene: Scene, client: Anthropic, api: MessagesAPI) -> None:
    """A call that the stream's reader defers is asked about and carried out when they are done, once."""
    api.say([LOOK, BURN])
    make = maker(client, guard_tools(tools_of(scene), scene.guard), stream=True, run_tools_eagerly=True)
    runner = make([GO])
    for stream in (run := GuardedRun(runner)):
        for event in stream:
            if event.type == "content_block_start" and event.content_block.type == "tool_use":
                runner.defer_tool_call(event.content_block)
        if runner.deferred_tool_calls:
            assert scene.ran == []
    assert run.until_done().content[0].text == "done"
    assert scene.ran == [("look", "sky"), ("burn", "water")]


def test_without_a_guarded_run(scene: Scene, client: Anthropic, api: MessagesAPI, caplog: Any) -> None:
    """A runner alone cannot pause: its model is told that the call waits. A refusal is no error of the SDK's log."""
    api.say([LOOK, PAY])
    with caplog.at_level(logging.ERROR):
        maker(client, guard_tools(tools_of(scene), scene.guard))([GO]).until_done()
    assert caplog.records == []
    assert api.read["call-pay"].text.startswith("Not done yet")
    assert scene.logged() == [("look", "success"), ("pay", "pending")]


def test_arguments_of_their_own_types(scene: Scene, client: Anthropic, api: MessagesAPI) -> None:
    """What the approver changed reaches the tool as what it declares; what does not fit does not run."""
    days: list[Any] = []

    @beta_tool
    def pay(to: str, day: dt.date) -> str:
        """Pay somebody on a day."""
        days.append(day)
        return f"paid {to}"

    tools = guard_tools([pay], scene.guard)
    for name, day in (("one", "2026-12-24"), ("two", "Christmas")):
        api.script(f"pay {name}", [Call("pay", {"to": name, "day": "2026-12-01"}, f"call-{name}")])
        run = GuardedRun(maker(client, tools)([{"role": "user", "content": f"pay {name}"}]))
        run.until_done()
        scene.approve(run.held[0].approval_id, context={"to": name, "day": day})
        assert resume(stored(run), tools, maker(client, tools)).until_done().content[0].text == "done"
    assert "edit cannot be applied" in api.read["call-two"].text
    assert days == [dt.date(2026, 12, 24)]


def test_a_function_that_is_guarded_itself(scene: Scene, client: Anthropic, api: MessagesAPI) -> None:
    """It asks once, by its own action; held, it pauses the run as others do, and runs once it is approved."""

    @beta_tool
    @scene.guard.guarded("tools.pay")
    def pay(to: str, amount: int) -> str:
        """Pay somebody."""
        return scene.pay(to, amount)

    api.say([PAY])
    tools = guard_tools([pay], scene.guard)
    run = GuardedRun(maker(client, tools)([GO]))
    assert run.until_done() is None
    scene.approve(run.held[0].approval_id)
    assert resume(stored(run), tools, maker(client, tools)).until_done().content[0].text == "done"
    assert (scene.ran, scene.requests()) == ([("pay", "eve", 40)], 1)
    assert scene.logged() == [("pay", "pending"), ("pay", "success")]


def test_agents_and_runs(scene: Scene, client: Anthropic, api: MessagesAPI) -> None:
    """The agent is named with its tools, the run where it is begun; the same ids in another run are other calls."""
    other = scene.owner.agent("other")
    scene.owner.permit(other, "tools.pay", requires_approval=True)
    tools = guard_tools(tools_of(scene), scene.guard, agent="payer", agents={"payer": other})
    api.say([PAY])
    first = GuardedRun(maker(client, tools)([GO]), run_id="run-7")
    first.until_done()
    scene.approve(first.held[0].approval_id)
    resume(stored(first), tools, maker(client, tools)).until_done()
    second = GuardedRun(maker(client, tools)([GO]))
    assert second.until_done() is None
    assert second.held[0].approval_id != first.held[0].approval_id
    assert scene.ran == [("pay", "eve", 40)]
    assert scene.guard.flush(30)
    said = {(each["agent_id"], each["run_id"]) for each in scene.owner.entries()}
    assert said == {(other, "run-7"), (other, second.run_id)}


async def test_what_is_no_runner(scene: Scene, client: Anthropic, api: MessagesAPI) -> None:
    """A run is of a runner of its own kind, and named by text."""
    sync = maker(client, guard_tools(tools_of(scene), scene.guard))([GO])
    async with AsyncAnthropic(api_key="scripted", base_url=api.url) as elsewhere:
        other = maker(elsewhere, guard_tools(async_tools_of(scene), scene.guard))([GO])
        with pytest.raises(ConfigurationError, match="runner is"):
            GuardedRun(other)
        await other.close()
    with pytest.raises(ConfigurationError, match="runner is"):
        AsyncGuardedRun(sync)
    with pytest.raises(ConfigurationError, match="run_id is 7"):
        GuardedRun(sync, run_id=7)  # type: ignore[arg-type]  # what is refused
    sync.close()


def test_what_cannot_be_resumed(scene: Scene, client: Anthropic, api: MessagesAPI) -> None:
    """Neither what is no state, nor without the tools that wait, nor by a no to a call that does not: nothing runs."""
    api.say([PAY])
    tools = guard_tools(tools_of(scene), scene.guard)
    run = GuardedRun(maker(client, tools)([GO]))
    run.until_done()
    scene.approve(run.held[0].approval_id)
    for state, given, rejected, why in (
        ({"messages": []}, tools, None, "state is not valid; pass"),
        ({**stored(run), "messages": []}, tools, None, "state is not valid; pass"),
        ({**stored(run), "messages": [GO]}, tools, None, "state is not valid; pass"),
        (
            {**stored(run), "held": stored(run)["held"] * 2},
            tools,
            None,
            "state is not valid; pass",
        ),
        (stored(run), tools, ["call-pay"], "rejected is"),
        (stored(run), tools, {"call-pay": None}, "rejected is"),
        (stored(run), guard_tools(async_tools_of(scene), scene.guard), None, "tool 'pay' waits"),
        (stored(run), tools_of(scene), None, "tool 'pay' waits"),
        (stored(run), tools, {"call-look": "no"}, "'call-look', which is not waiting for approval"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            resume(state, given, maker(client, tools), rejected=rejected)  # type: ignore[arg-type]  # what is refused
    with pytest.raises(ConfigurationError, match="runner is None"):
        resume(stored(run), tools, None)  # type: ignore[arg-type]  # what is refused
    assert scene.ran == []


def test_a_run_that_is_interrupted(scene: Scene, client: Anthropic, api: MessagesAPI) -> None:
    """Gone on with after Ctrl-C in a tool, the run carries out no call again, and pauses for those that wait."""

    @beta_tool
    def burn(what: str) -> str:
        """Be interrupted."""
        scene.look(what)
        raise KeyboardInterrupt

    api.say([LOOK, BURN, PAY])
    make = maker(client, guard_tools([*tools_of(scene)[:2], burn], scene.guard))
    run = GuardedRun(make([GO]))
    with pytest.raises(KeyboardInterrupt):
        run.until_done()
    assert run.until_done() is None
    assert [each.call_id for each in run.held] == ["call-pay"]
    assert scene.ran == [("look", "sky"), ("look", "water")]
    assert "interrupted" in str(stored(run)["results"])


@pytest.mark.parametrize("more", [[], [{"role": "user", "content": "hurry"}]])
def test_a_pause_after_messages_were_added(
    scene: Scene, client: Anthropic, api: MessagesAPI, more: list[Any]
) -> None:
    """What the loop added to the conversation is no reason to lose what a call comes to once it is approved."""
    api.say([LOOK, PAY])
    tools = guard_tools(tools_of(scene), scene.guard)
    runner = maker(client, tools)([GO])
    for message in (run := GuardedRun(runner)):
        runner.append_messages(message, runner.generate_tool_call_response(), *more)
    scene.approve(run.held[0].approval_id)
    assert resume(stored(run), tools, maker(client, tools)).until_done().content[0].text == "done"
    assert api.read["call-pay"].text == "paid 40 to eve"
    assert [each["role"] for each in api.requests[-1]["messages"]] == ["user", "assistant", "user"] + [
        each["role"] for each in more
    ]
    assert scene.ran == [("look", "sky"), ("pay", "eve", 40)]


@pytest.mark.parametrize("change", ["input", "call_id", "run_id", "name", "action"])
def test_a_state_that_was_changed(scene: Scene, client: Anthropic, api: MessagesAPI, change: str) -> None:
    """An approval lets through nothing but the call it was given for, by the action it was asked for under."""
    for action in ("drop", "other"):
        scene.owner.permit(scene.agent_id, f"tools.{action}", requires_approval=True)
    api.say([PAY])
    tools = guard_tools(tools_of(scene), scene.guard)
    run = GuardedRun(maker(client, tools)([GO]))
    run.until_done()
    scene.approve(run.held[0].approval_id)
    state = stored(run)
    [held], [call] = state["held"], state["messages"][-1]["content"][-1:]
    if change == "input":
        held["input"]["amount"] = 4000
    elif change == "call_id":
        held["call_id"] = call["id"] = "call-other"
    elif change == "run_id":
        state["run_id"] = "run-other"
    elif change == "name":
        held.update(name="drop", input={"table": "users"})
    else:
        tools = guard_tools(tools_of(scene), scene.guard, tool_actions={"pay": "tools.other"})
    resume(state, tools, maker(client, tools)).until_done()
    assert scene.ran == []


async def test_resumed_twice_at_once(scene: Scene, client: Anthropic, api: MessagesAPI) -> None:
    """Several that go on with the same state at once, and once more, run the call once."""
    api.say([PAY])
    tools = guard_tools(tools_of(scene), scene.guard)
    run = GuardedRun(maker(client, tools)([GO]))
    await asyncio.to_thread(run.until_done)
    scene.approve(run.held[0].approval_id)
    state, make = stored(run), maker(client, tools)
    await asyncio.gather(*(asyncio.to_thread(resume, state, tools, make) for _ in range(3)))
    await asyncio.to_thread(resume, state, tools, make)
    assert scene.ran == [("pay", "eve", 40)]
