"""What is asked about and what is recorded, whoever calls a function and whatever filters there are."""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel
from semantic_kernel import Kernel
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.contents import ChatHistory, FunctionCallContent
from semantic_kernel.exceptions import KernelInvokeException
from semantic_kernel.filters import FilterTypes
from semantic_kernel.functions import KernelArguments, KernelFunctionFromMethod, kernel_function
from support.frameworks.harness import Call, Scene
from support.frameworks.semantic_kernel import arguments, asked, function, kernel, read

from toolgate import ActionDenied, ApprovalPending, ConfigurationError
from toolgate_integrations.semantic_kernel import aresume, guard_kernel, waiting

LOOK = Call("look", {"what": "sky"}, "call-look")
PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
DROP = Call("drop", {"table": "users"}, "call-drop")
BURN = Call("burn", {"what": "water"}, "call-burn")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"guard": "me"}, "guard is 'me'"),
        ({"on_hold": "later"}, "on_hold is 'later'; use 'pause', 'wait', 'raise' or 'notify_model'"),
        ({"agents": ["treasurer"]}, "agents is"),
        ({"tool_actions": 7}, "tool_actions is 7"),
        ({"kernel": "mine"}, "kernel is 'mine'"),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, Any], said: str) -> None:
    """At once, by their names; the kernel stays as it was."""
    unguarded = Kernel()
    with pytest.raises(ConfigurationError) as error:
        guard_kernel(**{"kernel": unguarded, **given})
    assert said in str(error.value)
    assert unguarded.function_invocation_filters == unguarded.auto_function_invocation_filters == []


def test_a_kernel_is_guarded_once(scene: Scene) -> None:
    """Twice, its calls would be asked about twice."""
    with pytest.raises(ConfigurationError, match="already guarded"):
        guard_kernel(kernel(scene), scene.guard)


async def test_calls_without_a_model(scene: Scene) -> None:
    """`kernel.invoke` is asked about as the model's calls are; a refusal is raised to whoever called."""
    plain = kernel(scene)
    assert str(await plain.invoke(plugin_name="bank", function_name="look", what="sky")) == "seen sky"
    with pytest.raises(KernelInvokeException) as refused:
        await plain.invoke(plugin_name="bank", function_name="drop", table="users")
    assert isinstance(refused.value.__cause__, ActionDenied)
    with pytest.raises(KernelInvokeException) as held:
        await plain.invoke(plugin_name="bank", function_name="pay", to="eve", amount=40)
    assert isinstance(held.value.__cause__, ApprovalPending)
    scene.approve(held.value.__cause__.approval_id)
    await plain.invoke(plugin_name="bank", function_name="pay", to="eve", amount=40)
    assert scene.ran == [("look", "sky"), ("pay", "eve", 40)]


async def test_what_a_function_raises_is_a_failure(scene: Scene) -> None:
    """The framework tells it as the function's answer; the log says what it was, and the model reads the same."""
    _, history = await asked(kernel(scene, [BURN]), ChatHistory())
    unguarded = kernel(scene, [BURN])
    unguarded.function_invocation_filters.clear()
    unguarded.auto_function_invocation_filters.clear()
    assert read(history) == read((await asked(unguarded, ChatHistory()))[1])
    assert scene.logged() == [("burn", "failed")]


async def test_arguments_are_those_of_the_function(scene: Scene) -> None:
    """What else the run is told, such as who it is, is neither shown nor bound; who it is, is heard."""
    clerk_id = scene.owner.agent("clerk")
    scene.owner.permit(clerk_id, "bank.look")
    looking = kernel(scene, [LOOK], agents={"clerk": clerk_id})
    given = arguments(toolgate_agent="clerk", language="en")
    await asked(looking, ChatHistory(), arguments=given)
    assert scene.guard.flush(30)
    [entry] = scene.owner.entries()
    assert (entry["agent_id"], entry["action"], entry["status"]) == (clerk_id, "bank.look", "success")
    assert entry["context"].keys() - {"duration_ms", "run_id"} == {"what"}
    assert entry["run_id"] == "run-1"


async def test_arguments_are_asked_about_as_the_function_is_given_them(scene: Scene) -> None:
    """The framework makes the declared types of what a model writes, and true of the text "false"."""
    given = []

    class To(BaseModel):
        name: str

    @kernel_function
    def pay(to: To, amount: int, *, urgent: bool) -> str:
        given.append((to, amount, urgent))
        return "paid"

    call = Call("pay", {"to": {"name": "eve"}, "amount": "40", "urgent": "false"}, "call-pay")
    paying = kernel(scene, [call], functions=[pay])
    _, history = await asked(paying, ChatHistory())
    [request] = scene.owner.http.get("/api/approvals").json()
    assert request["context"] == {"to": {"name": "eve"}, "amount": 40, "urgent": True}
    edit = {"to": {"name": "ann"}, "amount": 25, "urgent": False}
    scene.approve(request["id"], context=edit)
    assert await aresume(paying, history, arguments=arguments()) == {}
    assert given == [(To(name="ann"), 25, False)]


async def test_arguments_are_made_once(scene: Scene) -> None:
    """What the gateway was told is what runs, also in a type that makes another thing of itself."""
    given = []

    @dataclass
    class To:
        name: str

    @kernel_function
    def look(what: To) -> str:
        given.append(what)
        return "seen"

    call = Call("look", {"what": {"name": "eve"}}, "call-look")
    await asked(kernel(scene, [call], functions=[look]), ChatHistory())
    assert given == [To("eve")]


async def test_arguments_that_do_not_fit_are_not_asked_about(scene: Scene) -> None:
    """The model reads the framework's complaint."""
    _, history = await asked(
        kernel(scene, [Call("pay", {"to": "eve", "amount": "much"}, "call-pay")]), ChatHistory()
    )
    assert "expected to be parsed" in read(history)["call-pay"]
    assert (scene.ran, scene.requests(), scene.logged()) == ([], 0, [])


@pytest.mark.parametrize("error", [RuntimeError("broken"), ConfigurationError("broken")])
async def test_a_guard_that_fails_lets_nothing_run(scene: Scene, error: Exception) -> None:
    """The framework swallows what its filters raise: the function stands inside, and does not run."""

    def breaks(_: str) -> str:
        raise error

    run = asked(kernel(scene, [LOOK], tool_actions=breaks), ChatHistory())
    if isinstance(error, ConfigurationError):
        with pytest.raises(ConfigurationError, match="broken"):
            await run
    else:
        text, history = await run
        assert text == "done"
        assert read(history)["call-look"]
    assert scene.ran == []


async def change(context: Any, next: Callable[[Any], Any]) -> None:  # noqa: A002 - so the framework calls it
    context.arguments["what"] = "secret"
    await next(context)


async def test_a_filter_that_was_added_later(scene: Scene) -> None:
    """The guard stands nearest to the function whenever a model calls: it asks about what the filter made of a call."""
    looking = kernel(scene, [LOOK])
    looking.add_filter(FilterTypes.FUNCTION_INVOCATION, change)
    await asked(looking, ChatHistory())
    assert scene.ran == [("look", "secret")]
    assert scene.guard.flush(30)
    assert [each["context"]["what"] for each in scene.owner.entries()] == ["secret"]


async def test_a_filter_that_was_added_later_and_no_model(scene: Scene) -> None:
    """Between the guard and the function nothing may change a call: it is refused, and the guard moves."""
    looking = kernel(scene)
    looking.add_filter(FilterTypes.FUNCTION_INVOCATION, change)
    with pytest.raises(KernelInvokeException) as refused:
        await looking.invoke(plugin_name="bank", function_name="look", what="sky")
    assert "added after the guard" in str(refused.value.__cause__)
    assert scene.ran == []
    await looking.invoke(plugin_name="bank", function_name="look", what="sky")
    assert scene.ran == [("look", "secret")]


async def test_what_is_called_beside_a_call_is_another_one(scene: Scene) -> None:
    """Neither what a filter calls before, nor what a function calls itself, passes under the model's call."""
    ran = []

    @kernel_function
    async def look(what: str) -> str:
        ran.append(what)
        return str(await looking.invoke(plugin_name="bank", function_name="pay", to=what, amount=1))

    looking = kernel(scene, [LOOK], functions=[look, function(scene.pay), function(scene.drop)])

    async def before(context: Any, next: Callable[[Any], Any]) -> None:  # noqa: A002 - so the framework calls it
        with pytest.raises(KernelInvokeException):
            await context.kernel.invoke(plugin_name="bank", function_name="drop", table="users")
        await next(context)

    looking.add_filter(FilterTypes.AUTO_FUNCTION_INVOCATION, before)
    text, history = await asked(looking, ChatHistory())
    assert (ran, scene.ran) == (["sky"], [])
    # The payment was raised to the function, and not told to the model as the call's own hold.
    assert "An error occurred" in read(history)["call-look"]
    assert (text, waiting(history)) == ("done", {})
    assert scene.logged() == [("drop", "denied"), ("look", "failed"), ("pay", "pending")]


async def test_prompts_are_no_tools(scene: Scene) -> None:
    """They are not asked about; the functions they call are."""
    plain = kernel(scene)
    assert str(await plain.invoke_prompt("Look: {{bank.look 'sky'}}")) == "done"
    with pytest.raises(KernelInvokeException):
        await plain.invoke_prompt("Drop: {{bank.drop 'users'}}")
    assert scene.ran == [("look", "sky")]
    assert scene.logged() == [("drop", "denied"), ("look", "success")]


async def test_a_function_that_is_streamed(scene: Scene) -> None:
    """It runs after its filters are through, were it not for the guard: its outcome is what became of it."""

    @kernel_function
    async def look(what: str) -> AsyncIterator[str]:
        yield "seen"
        yield what

    @kernel_function
    async def burn(what: str) -> AsyncIterator[str]:
        yield what
        raise RuntimeError("does not burn")

    plain = kernel(scene, functions=[look, burn])
    parts = [each async for each in plain.invoke_stream(plugin_name="bank", function_name="look", what="sky")]
    assert parts == ["seen", "sky"]
    with pytest.raises(RuntimeError):
        _ = [each async for each in plain.invoke_stream(plugin_name="bank", function_name="burn", what="it")]
    assert scene.logged() == [("burn", "failed"), ("look", "success")]


async def test_a_function_that_has_another_for_its_stream(scene: Scene) -> None:
    """The one that is called is looked at: that the other is guarded itself lets nothing through."""
    guarded = kernel_function(name="drop")(scene.guard.guarded("bank.look")(look))

    async def parts(what: str) -> AsyncIterator[str]:
        scene.ran.append(("drop", what))
        yield what

    drop = KernelFunctionFromMethod(method=guarded, plugin_name="bank", stream_method=parts)
    plain = kernel(scene, functions=[drop])
    with pytest.raises(ActionDenied):
        _ = [each async for each in plain.invoke_stream(plugin_name="bank", function_name="drop", what="it")]
    assert scene.ran == []
    assert scene.logged() == [("drop", "denied")]


async def test_a_function_that_is_given_all_arguments(scene: Scene) -> None:
    """It is asked about with all: an approval of one amount lets no other through."""

    @kernel_function
    def pay(arguments: KernelArguments) -> str:
        scene.ran.append(("pay", arguments["amount"]))
        return "paid"

    plain = kernel(scene, functions=[pay])

    async def pays(amount: int) -> str:
        with pytest.raises(KernelInvokeException) as held:
            await plain.invoke(plugin_name="bank", function_name="pay", arguments=arguments(amount=amount))
        assert isinstance(held.value.__cause__, ApprovalPending)
        return held.value.__cause__.approval_id

    approval_id = await pays(40)
    [request] = scene.owner.http.get("/api/approvals").json()
    assert request["context"] == {"amount": 40}
    scene.approve(approval_id)
    assert await pays(4000) != approval_id
    await plain.invoke(plugin_name="bank", function_name="pay", arguments=arguments(amount=40))
    assert scene.ran == [("pay", 40)]


@pytest.mark.parametrize("name", ["toolgate_run_id", "toolgate_agent"])
async def test_a_name_that_is_no_text_is_refused(scene: Scene, name: str) -> None:
    """The error says which one; nothing runs."""
    with pytest.raises(KernelInvokeException) as refused:
        await kernel(scene).invoke(plugin_name="bank", function_name="look", what="sky", **{name: 7})
    assert isinstance(refused.value.__cause__, ConfigurationError)
    assert f"{name} is 7" in str(refused.value.__cause__)
    assert scene.ran == []


@pytest.mark.parametrize("copied", [Kernel.clone, copy.deepcopy, lambda one: one.model_copy(deep=True)])
async def test_copies_of_a_kernel_are_guarded(scene: Scene, copied: Callable[[Kernel], Kernel]) -> None:
    """By the same guard, also where functions are guarded themselves."""
    plain = kernel(
        scene, functions=[kernel_function(scene.guard.guarded("bank.look")(look)), function(scene.drop)]
    )
    twin = copied(plain)
    assert str(await twin.invoke(plugin_name="bank", function_name="look", what="sky")) == "sky"
    with pytest.raises(KernelInvokeException):
        await twin.invoke(plugin_name="bank", function_name="drop", table="users")
    assert scene.logged() == [("drop", "denied"), ("look", "success")]


def look(what: str) -> str:
    return what


async def test_calls_that_the_application_carries_out(scene: Scene) -> None:
    """`kernel.invoke_function_call` is asked about by the call's id, as the framework's own loop is."""
    plain, history = kernel(scene), ChatHistory()
    behaviour = FunctionChoiceBehavior.Auto(auto_invoke=False)
    for each in (LOOK, DROP, PAY):
        call = FunctionCallContent(id=each.id, name=f"bank-{each.tool}", arguments=dict(each.arguments))
        ended = await plain.invoke_function_call(call, history, function_behavior=behaviour)
        assert (ended is not None) == (each is PAY)
    assert list(waiting(history)) == ["call-pay"]
    assert scene.ran == [("look", "sky")]


async def test_a_call_without_a_name_does_not_pause(scene: Scene) -> None:
    """It could not be found again; the model reads that it waits."""
    plain, history = kernel(scene), ChatHistory()
    call = FunctionCallContent(name="bank-pay", arguments=dict(PAY.arguments))
    assert await plain.invoke_function_call(call, history) is None
    assert "Not done yet" in str(history.messages[0].items[0])
    assert waiting(history) == {}


async def test_arguments_of_the_caller_stay_as_they_are(scene: Scene) -> None:
    """An edit reaches the function, and not the caller's own arguments."""
    given = KernelArguments(to="eve", amount=40)
    plain = kernel(scene, on_hold="wait")
    run = asyncio.create_task(plain.invoke(plugin_name="bank", function_name="pay", arguments=given))
    asked_for = await scene.asked(1)
    edit = {"to": "eve", "amount": 25}
    await asyncio.to_thread(scene.approve, asked_for["eve"], context=edit)
    await run
    assert (scene.ran, dict(given)) == ([("pay", "eve", 25)], {"to": "eve", "amount": 40})
