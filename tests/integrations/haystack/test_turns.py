"""Turns: calls that are asked about together, and run by a framework that tells its tools their arguments alone."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from toolgate import ActionDenied, ApprovalPending, ConfigurationError, Guard
from toolgate.testing import FakeGateway
from toolgate_integrations.base import Bridge, ToolCall
from toolgate_integrations.haystack.turn import Made, NotRunError, Runs, Turn


class WrappedError(Exception):
    """What a framework makes of a tool's error."""


class ToldError(Exception):
    """What a framework is told of a call that does not run."""


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway(allow=["tools.look", "tools.burn"], require_approval=["tools.pay"])


@pytest.fixture
def guard(gateway: FakeGateway) -> Guard:
    return gateway.guard()


def made(name: str, call_id: str | None = None, function: object = None, **arguments: Any) -> Made:
    """A call of a turn; the framework has it as a mapping."""
    return Made(ToolCall(name, arguments, call_id=call_id, function=function), {name: arguments})


def turn_of(guard: Guard, *calls: Made, **given: Any) -> Turn:
    return Turn(Bridge(guard, **given), calls, WrappedError)


def left(*calls: Made) -> Callable[[], list[tuple[str, Mapping[str, Any]]]]:
    """What the framework is about to run: these calls, as it has them."""
    return lambda: [next(iter(each.own.items())) for each in calls]


def closed(guard: Guard, *calls: Made) -> Turn:
    """A turn whose calls are asked about, and left to the framework."""
    turn = turn_of(guard, *calls)
    turn.ask()
    turn.remove_refused_calls(left(*calls))
    return turn


def logged(gateway: FakeGateway, guard: Guard) -> list[tuple[str, str]]:
    assert guard.flush(10)
    return sorted((each.action, each.status) for each in gateway.entries)


async def ask(turn: Turn, way: str) -> None:
    """Ask about a turn's calls."""
    if way == "sync":
        turn.ask()
    else:
        await turn.aask()


async def run(turn: Turn, way: str, name: str, given: Mapping[str, Any], tool: Callable[[], Any]) -> Any:
    """Begin a tool."""
    if way == "sync":
        return turn.run(name, given, tool, ToldError)

    async def atool() -> Any:
        return tool()

    return await turn.arun(name, given, atool, ToldError)


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_what_is_refused_is_no_part_of_the_turn(gateway: FakeGateway, guard: Guard, way: str) -> None:
    """Each call is asked about before any runs: what is blocked or waits is given back, with what the model reads."""
    look, drop, pay = made("look", what="sky"), made("drop", table="users"), made("pay", "call-1", to="eve")
    turn = turn_of(guard, look, drop, pay)
    await ask(turn, way)
    refused = turn.remove_refused_calls(left(look))
    assert (refused, turn.made) == ([drop, pay], [look])
    assert isinstance(drop.refused, ActionDenied)
    assert isinstance(pay.refused, ApprovalPending)
    assert ("is blocked" in drop.told, "waits for a person" in pay.told) == (True, True)
    assert await run(turn, way, "look", {"what": "sky"}, lambda: "seen") == "seen"
    assert logged(gateway, guard) == [
        ("tools.drop", "denied"),
        ("tools.look", "success"),
        ("tools.pay", "pending"),
    ]


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_question_that_goes_wrong_runs_nothing(gateway: FakeGateway, guard: Guard, way: str) -> None:
    """What is no refusal comes through, and what was let through before it is recorded as not run."""

    def actions(name: str) -> str | None:
        if name == "drop":
            raise LookupError("no such table")
        return None

    turn = turn_of(guard, made("look", what="sky"), made("drop", table="users"), tool_actions=actions)
    with pytest.raises(LookupError):
        await ask(turn, way)
    assert logged(gateway, guard) == [("tools.look", "failed")]


async def test_people_are_asked_about_all_calls_at_once(
    gateway: FakeGateway, guard: Guard, guard_waits: Callable[[], Awaitable[object]]
) -> None:
    """A turn that waits makes every request before it waits for the first."""
    pays = [made("pay", f"call-{each}", to=each) for each in ("eve", "ann")]
    turn = turn_of(guard, *pays, on_hold="wait")
    asking = asyncio.create_task(asyncio.to_thread(turn.ask))
    await guard_waits()
    requests = gateway.pending()
    for each in requests:
        gateway.approve(each.approval_id)
    await asking
    assert sorted(each.context["to"] for each in requests) == ["ann", "eve"]
    assert turn.remove_refused_calls(left(*pays)) == []


def test_what_was_approved_is_what_runs(gateway: FakeGateway, guard: Guard) -> None:
    """A call has the arguments that the person changed; a tool that is given others finds no call."""
    pay = made("pay", "call-1", to="eve", amount=40)
    turn_of(guard, pay).ask()
    gateway.approve(context={"to": "eve", "amount": 25})
    again = made("pay", "call-1", to="eve", amount=40)
    turn = turn_of(guard, again)
    turn.ask()
    assert (again.refused, again.arguments) == (None, {"to": "eve", "amount": 25})
    turn.remove_refused_calls(lambda: [("pay", again.arguments)])
    with pytest.raises(ToldError, match="changed the call after it was approved"):
        turn.run("pay", {"to": "eve", "amount": 40}, lambda: pytest.fail("it ran"), ToldError)
    assert turn.run("pay", {"to": "eve", "amount": 25}, lambda: "paid", ToldError) == "paid"


@pytest.mark.parametrize("change", ["in place", "added", "doubled", "renamed", "nested"])
def test_what_was_changed_after_it_was_approved(gateway: FakeGateway, guard: Guard, change: str) -> None:
    """Once the framework is left anything but what was approved, no tool of the turn runs."""
    look = made("look", what="sky", near=["sea"])
    also = made("look", what="sun", near=[])
    turn = turn_of(guard, look, also)
    turn.ask()
    own = dict(look.asked.arguments)
    calls: list[tuple[str, Mapping[str, Any]]] = [
        ("look", look.asked.arguments),
        ("look", also.asked.arguments),
    ]
    turn.remove_refused_calls(lambda: calls)
    if change == "in place":
        look.own["look"]["what"] = "everything"
    elif change == "nested":
        look.own["look"]["near"].append("everything")
    elif change == "added":
        calls[0] = ("look", {**own, "times": 7})
    elif change == "doubled":
        calls.append(calls[0])
    else:
        calls[0] = ("drop", own)
    for name, given in calls:
        with pytest.raises(ToldError, match="changed the call after it was approved"):
            turn.run(name, given, lambda: pytest.fail("it ran"), ToldError)
    turn.end()
    assert logged(gateway, guard) == [("tools.look", "failed")] * 2


def test_a_call_runs_once_whatever_begins_at_once(gateway: FakeGateway, guard: Guard) -> None:
    """Of tools that begin with equal arguments in several threads, as many run as calls were approved."""
    calls = [made("look", f"call-{number}", what="sky") for number in range(2)]
    turn, ran = closed(guard, *calls), []

    def begin(_: int) -> str:
        try:
            return turn.run(
                "look", {"what": "sky", "state": object()}, lambda: ran.append(1) or "seen", ToldError
            )
        except ToldError:
            return "not done"

    with ThreadPoolExecutor(8) as pool:
        said = sorted(pool.map(begin, range(8)))
    assert said == ["not done"] * 6 + ["seen"] * 2
    assert len(ran) == 2
    assert logged(gateway, guard) == [("tools.look", "success")] * 2


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_tools_own_error(gateway: FakeGateway, guard: Guard, way: str) -> None:
    """The log tells of the tool's error, the framework goes on with its own; one that wraps nothing stays."""
    wrapped = WrappedError("the tool failed")

    def burn() -> None:
        raise wrapped from RuntimeError("water does not burn")

    turn = closed(guard, made("burn", what="water"))
    with pytest.raises(WrappedError) as raised:
        await run(turn, way, "burn", {"what": "water"}, burn)
    assert raised.value is wrapped
    assert guard.flush(10)
    [entry] = gateway.entries
    assert (entry.status, entry.context["error"]["message"]) == ("failed", "water does not burn")

    def bare() -> None:
        raise WrappedError("nothing inside")

    with pytest.raises(WrappedError, match="nothing inside"):
        await run(closed(guard, made("burn", what="water")), way, "burn", {"what": "water"}, bare)


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_function_that_is_guarded_itself(gateway: FakeGateway, guard: Guard, way: str) -> None:
    """It asks when it is run; held there, the model is told so, and the end of the turn names it."""
    pay = guard.guarded("tools.pay")(lambda to: f"paid {to}")
    call = made("pay", "call-1", function=pay, to="eve")
    turn = turn_of(guard, call)
    turn.ask()
    gateway.assert_not_checked()
    assert turn.remove_refused_calls(left(call)) == []

    with pytest.raises(ToldError, match="waits for a person") as raised:
        await run(turn, way, "pay", {"to": "eve"}, lambda: pay("eve"))
    assert isinstance(raised.value.__cause__, ApprovalPending)
    assert turn.end() == [call]


def test_what_was_never_run(gateway: FakeGateway, guard: Guard) -> None:
    """Of calls whose tools were not seen to begin the log tells what the framework says, or that they never began."""
    calls = [made("look", f"call-{number}", what=str(number)) for number in range(3)]
    turn = closed(guard, *calls)
    assert turn.end([(calls[0].own, None), (calls[1].own, "no such thing"), ({}, "another's")]) == []
    assert turn.end() == []
    assert guard.flush(10)
    said = {each.context["what"]: each for each in gateway.entries}
    assert [said[each].status for each in "012"] == ["success", "failed", "failed"]
    assert said["1"].context["error"]["message"] == "no such thing"
    assert "before the tool was called" in said["2"].context["error"]["message"]


def test_a_call_that_cannot_be_asked_about(gateway: FakeGateway, guard: Guard, caplog: Any) -> None:
    """What its operator must repair ends the run, and stands in the program's log."""
    call = made("look", what="sky")
    call.asked = ToolCall("look", {"what": "sky"}, server="tools")
    turn = turn_of(guard, call)
    with pytest.raises(ConfigurationError, match="a server cannot have the name 'tools'"):
        turn.ask()
    assert "a server cannot have the name 'tools'" in caplog.text


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_a_tool_that_begins_before_all_is_asked(gateway: FakeGateway, guard: Guard, way: str) -> None:
    """Nothing runs for a call that nobody has let through."""
    turn = turn_of(guard, made("look", what="sky"))
    with pytest.raises(NotRunError):
        await run(turn, way, "look", {"what": "sky"}, lambda: pytest.fail("it ran"))


class State:
    """What a framework has one of for each run."""


def test_runs_are_told_apart_and_tidied_up_after(gateway: FakeGateway, guard: Guard) -> None:
    """A run is known as long as its object lasts; what it has left is recorded when the next is asked for."""
    runs, one, other = Runs(), State(), State()
    run = runs.of(one)
    assert runs.of(one) is run
    assert runs.of(other).run_id != run.run_id
    run.turn = closed(guard, made("look", what="sky"))
    del one
    gc.collect()
    runs.of(other)
    assert logged(gateway, guard) == [("tools.look", "failed")]
