"""Runs that end for a person, and go on from their chat history."""

from collections.abc import Callable
from typing import Any

import pytest
from semantic_kernel import Kernel
from semantic_kernel.contents import ChatHistory
from semantic_kernel.filters import FilterTypes
from semantic_kernel.functions import kernel_function
from support.frameworks.harness import Call, Scene
from support.frameworks.semantic_kernel import arguments, asked, function, kernel, read

from toolgate import ConfigurationError
from toolgate_integrations.semantic_kernel import aresume, resume, waiting

PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
MORE = Call("pay", {"to": "ann", "amount": 70}, "call-more")
BURN = Call("burn", {"what": "water"}, "call-burn")


def restored(history: ChatHistory) -> ChatHistory:
    """As another process reads it."""
    return ChatHistory.restore_chat_history(history.serialize())


async def test_the_run_ends_and_says_what_waits(scene: Scene) -> None:
    """The model is not asked again; the history says which call waits, and for which approval."""
    text, history = await asked(kernel(scene, [PAY]), ChatHistory())
    [request] = scene.owner.http.get("/api/approvals").json()
    assert text == ""
    assert waiting(restored(history)) == {"call-pay": request["id"]}
    assert request["id"] in read(history)["call-pay"]


async def test_a_no_is_taken_as_it_is(scene: Scene) -> None:
    """Of two calls one is rejected, although it was approved, and the other waits on."""
    _, history = await asked(kernel(scene, [PAY, MORE]), ChatHistory())
    held, later, fresh = waiting(history), restored(history), kernel(scene)
    scene.approve(held["call-pay"])
    still = await aresume(fresh, later, arguments=arguments(), rejected={"call-pay": "not eve"})
    assert still == {"call-more": held["call-more"]}
    assert read(later)["call-pay"] == "Not done: the call was rejected. not eve"
    assert scene.status(held["call-pay"]) == "cancelled"
    scene.approve(held["call-more"])
    assert await aresume(fresh, later, arguments=arguments()) == {}
    text, _ = await asked(fresh, later, None)
    assert (text, scene.ran) == ("done", [("pay", "ann", 70)])
    assert scene.requests() == 2


async def test_the_former_name_of_aresume_warns(scene: Scene) -> None:
    _, history = await asked(kernel(scene, [PAY]), ChatHistory())
    scene.approve(waiting(history)["call-pay"])
    with pytest.warns(DeprecationWarning, match="resume is deprecated; use aresume"):
        assert await resume(kernel(scene), history, arguments=arguments()) == {}
    assert scene.ran == [("pay", "eve", 40)]


async def test_what_has_run_is_kept_beside_what_fails(scene: Scene) -> None:
    """A call whose function raises is answered as ever; none is carried out twice."""
    scene.owner.permit(scene.agent_id, "bank.drop", requires_approval=True)
    drop = Call("drop", {"table": "users"}, "call-drop")

    @kernel_function(name="drop")
    def fail(table: str) -> str:
        raise RuntimeError(f"no {table}")

    both = kernel(scene, [PAY, drop], functions=[function(scene.pay), fail])
    _, history = await asked(both, ChatHistory())
    for approval_id in waiting(history).values():
        scene.approve(approval_id)
    assert await aresume(both, history, arguments=arguments()) == {}
    assert await aresume(both, history, arguments=arguments()) == {}
    assert scene.ran == [("pay", "eve", 40)]
    assert "no users" in read(history)["call-drop"]
    assert scene.logged().count(("pay", "success")) == 1


@pytest.mark.parametrize("rejected", [{}, {"call-pay": "not eve"}])
async def test_a_guarded_function_is_asked_once(scene: Scene, rejected: dict[str, str]) -> None:
    """It asks by its own action; its hold ends the run, and another process may reject it."""
    scene.owner.permit(scene.agent_id, "bank.transfer", requires_approval=True)
    ran = []

    @kernel_function
    @scene.guard.guarded("bank.transfer")
    def pay(to: str, amount: int) -> str:
        ran.append((to, amount))
        return "paid"

    _, history = await asked(kernel(scene, [PAY], functions=[pay]), ChatHistory())
    [request] = scene.owner.http.get("/api/approvals").json()
    assert (request["action"], waiting(history)) == ("bank.transfer", {"call-pay": request["id"]})
    fresh = kernel(scene, functions=[pay])
    if not rejected:
        scene.approve(request["id"])
    assert await aresume(fresh, history, arguments=arguments(), rejected=rejected) == {}
    assert ran == ([] if rejected else [("eve", 40)])
    assert scene.status(request["id"]) == ("cancelled" if rejected else "consumed")
    assert scene.requests() == 1


async def test_a_guarded_step_inside_a_function(scene: Scene) -> None:
    """Held inside, the function is carried out again once the person decided."""
    scene.owner.permit(scene.agent_id, "bank.transfer", requires_approval=True)

    @scene.guard.guarded("bank.transfer")
    async def transfer(to: str) -> str:
        scene.ran.append(("transfer", to))
        return "transferred"

    @kernel_function
    async def look(what: str) -> str:
        return str(await transfer(what))

    looking = kernel(scene, [Call("look", {"what": "sky"}, "call-look")], functions=[look])
    _, history = await asked(looking, ChatHistory())
    scene.approve(waiting(history)["call-look"])
    assert await aresume(looking, history, arguments=arguments()) == {}
    assert (scene.ran, read(history)) == ([("transfer", "sky")], {"call-look": "transferred"})
    assert [each for each in scene.logged() if each[0] == "look"] == [
        ("look", "pending"),
        ("look", "success"),
    ]


async def test_what_does_not_fit_is_refused(scene: Scene) -> None:
    """A kernel without a guard, a no to a call that does not wait, a history that was cut."""
    _, history = await asked(kernel(scene, [PAY]), ChatHistory())
    unguarded: Any = Kernel()
    with pytest.raises(ConfigurationError, match="not guarded"):
        await aresume(unguarded, history)
    with pytest.raises(ConfigurationError, match="'call-more'"):
        await aresume(kernel(scene), history, rejected={"call-more": "no"})
    cut = ChatHistory(messages=history.messages[-1:])
    with pytest.raises(ConfigurationError, match="not the call 'call-pay'"):
        await aresume(kernel(scene), cut, arguments=arguments())
    assert scene.ran == []


async def test_a_history_that_was_cut_carries_nothing_out(scene: Scene) -> None:
    """Neither the calls that are still in it: nobody would read what became of them."""
    _, history = await asked(kernel(scene, [PAY]), ChatHistory())
    _, later = await asked(kernel(scene, [MORE]), ChatHistory())
    for approval_id in (*waiting(history).values(), *waiting(later).values()):
        scene.approve(approval_id)
    cut = ChatHistory(messages=[*history.messages, later.messages[-1]])
    fresh, begun = kernel(scene), []

    async def begin(context: Any, next: Callable[[Any], Any]) -> None:  # noqa: A002 - so the framework calls it
        begun.append(context.function.name)

    fresh.add_filter(FilterTypes.AUTO_FUNCTION_INVOCATION, begin)
    with pytest.raises(ConfigurationError, match="not the call 'call-more'"):
        await aresume(fresh, cut, arguments=arguments())
    assert begun == []
