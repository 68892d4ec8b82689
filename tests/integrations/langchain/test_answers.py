"""What a run is resumed with: a no is heard in every shape of LangChain's, nothing else means anything."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from support.frameworks.graphs import Run
from support.frameworks.harness import Scene
from support.frameworks.scripted import calling

from toolgate import GatewayUnavailable
from toolgate.testing import FakeGateway
from toolgate_integrations.langchain import GuardMiddleware, find_rejection

PAY = ("pay", {"to": "eve", "amount": 40}, "call-pay")
NOES: list[tuple[Any, str]] = [
    ({"type": "reject", "message": "too much"}, "too much"),
    ({"type": "reject"}, ""),
    ({"type": "reject", "message": None}, ""),
    ({"type": "reject", "tool_call_id": "call-pay"}, ""),
    ({"decisions": [{"type": "reject", "message": "too much"}]}, "too much"),
    ([{"type": "ignore"}], ""),
    ({"type": "response", "args": "I did it myself"}, "I did it myself"),
    ({"type": "respond", "message": "I did it myself"}, "I did it myself"),
    (False, ""),
    ("reject", ""),
]
EDIT = {"type": "edit", "edited_action": {"name": "pay", "args": {"to": "eve", "amount": 1}}}
REST: list[Any] = [
    True,
    "yes",
    "",
    0,
    7,
    {},
    [],
    {"type": 3},
    {"type": "approve"},
    {"type": "reject", "tool_call_id": "another"},
    {"decisions": "none"},
    {"decisions": [{"type": "approve"}]},
    EDIT,
    {"decisions": [EDIT]},
]
json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["type", "decisions", "message", "a"]), inner)
    ),
)


@given(json)
def test_anything_can_be_an_answer(answer: object) -> None:
    """Whatever comes is a no with words, or none."""
    assert isinstance(find_rejection([answer], "call-1"), str | None)


def test_an_answer_without_end_is_none() -> None:
    """Lists in lists are looked into as deep as anybody would write them."""
    endless: list[Any] = []
    endless.append(endless)
    assert find_rejection(endless, "call-1") is None


def running(scene: Scene, **options: Any) -> Run:
    agent = create_agent(
        calling([PAY]),
        [tool(scene.pay)],
        middleware=[GuardMiddleware(scene.guard, **options)],
        checkpointer=InMemorySaver(),
    )
    return Run(agent)


@pytest.mark.parametrize(("answer", "words"), NOES)
async def test_a_no_is_a_no(scene: Scene, answer: object, words: str) -> None:
    """The call does not run, though somebody approved it meanwhile; the model reads what was said."""
    run = running(scene)
    await run.start()
    scene.approve(run.held["call-pay"])
    await run.resume(answer)
    assert scene.ran == []
    assert run.read["call-pay"] == f"Not done: the call was rejected. {words}".strip()


@pytest.mark.parametrize("answer", REST)
async def test_anything_else_is_no_yes(scene: Scene, answer: object) -> None:
    """Undecided at the gateway the run pauses again, with the same request; approved, what was approved runs."""
    run = running(scene)
    await run.start()
    held = dict(run.held)
    await run.resume(answer)
    assert scene.ran == []
    assert dict(run.held) == held
    scene.approve(held["call-pay"])
    await run.resume(answer)
    assert scene.ran == [("pay", "eve", 40)]
    assert scene.requests() == 1


async def test_a_bare_answer_is_heard_too(scene: Scene) -> None:
    """`Command(resume=…)` without the interrupt's id."""
    run = running(scene)
    await run.start()
    approval_id = run.held["call-pay"]
    from langgraph.types import Command

    run.graph.invoke(Command(resume={"type": "reject"}), run.config)
    assert scene.ran == []
    assert scene.status(approval_id) == "cancelled"


@pytest.mark.parametrize("calls", [1, 2])
def test_run_that_is_resumed_during_an_outage_can_be_resumed_again(calls: int) -> None:
    paid: list[int] = []

    def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return "paid"

    fake = FakeGateway(require_approval=["tools.pay"])
    turn = [("pay", {"amount": number}, f"call-{number}") for number in range(calls)]
    agent = create_agent(
        calling(turn), [pay], middleware=[GuardMiddleware(fake.guard())], checkpointer=InMemorySaver()
    )
    thread: Any = {"configurable": {"thread_id": "t"}}
    agent.invoke({"messages": [("user", "pay")]}, thread)
    for approval in fake.pending():
        fake.approve(approval.approval_id)
    for _ in range(2):
        resumed = Command(
            resume={each.id: {"type": "approve"} for each in agent.get_state(thread).interrupts}
        )
        with fake.outage(), pytest.raises(GatewayUnavailable):
            agent.invoke(resumed, thread)
        assert paid == []
    found = agent.invoke(resumed, thread)
    assert sorted(paid) == list(range(calls))
    assert found["messages"][-1].text == "done"
