"""Calls that a model makes, the agents that others manage, and what is guarded as it comes in."""

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from smolagents import AgentError, FinalAnswerTool, Tool, ToolCallingAgent, tool
from smolagents.tools import BaseTool
from support.frameworks.harness import Call, Scene
from support.frameworks.smolagents import DONE, Scripted, agent, steps, tools
from support.waiting import until

from toolgate import ConfigurationError
from toolgate_integrations.smolagents import guard_agent

LOOK = Call("look", {"what": "sky"}, "call-look")
PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
DROP = Call("drop", {"table": "users"}, "call-drop")


class Swapped(Tool):  # type: ignore[misc]  # the framework leaves it without types
    """A tool whose inputs stand in another order than its parameters."""

    name, description, output_type = "pay", "Pay somebody.", "string"
    inputs = {  # noqa: RUF012 - as the framework wants it
        "amount": {"type": "integer", "description": "amount"},
        "to": {"type": "string", "description": "to"},
    }

    def forward(self, to: str, amount: int) -> str:
        return f"{amount} to {to}"


class Encoding(Tool):  # type: ignore[misc]  # likewise
    """A tool that is called by other names than it goes on with, as those that run a model here."""

    name, description, output_type = "look", "Look at something.", "string"
    inputs = {"what": {"type": "string", "description": "what"}}  # noqa: RUF012 - likewise
    skip_forward_signature_validation = True

    def forward(self, encoded: bytes) -> str:
        return f"seen {encoded.decode()}"

    def __call__(self, what: str, sanitize_inputs_outputs: bool = False) -> str:
        return self.forward(what.encode())


class LastWord(Tool):  # type: ignore[misc]  # likewise
    """A tool that does more than it is called."""

    name, description, output_type = "final_answer", "Answers.", "any"
    inputs = {"answer": {"type": "any", "description": "answer"}}  # noqa: RUF012 - likewise

    def forward(self, answer: Any) -> Any:
        raise AssertionError("it ran")


def member(scene: Scene, *calls: Call) -> Any:
    """An agent that another may manage."""
    return ToolCallingAgent(
        tools=tools(scene), model=Scripted(calls, [DONE]), name="member", description="helps"
    )


def test_a_refusal_takes_nothing_from_the_calls_beside_it(scene: Scene) -> None:
    """Raised in a turn of several calls, it would take away the answers of those that ran."""
    looking = agent(scene, [LOOK, DROP], [DONE])
    looking.run("go")
    assert steps(looking)[0].error is None
    blocked, seen = steps(looking)[0].observations.splitlines()
    assert (blocked[:8], seen) == ("Not done", "seen sky")


def test_streamed(scene: Scene) -> None:
    """A run that is streamed step by step goes the same way."""
    looking = agent(scene, [LOOK, DROP], [DONE])
    assert list(looking.run("go", stream=True))
    assert scene.ran == [("look", "sky")]


def test_agents_that_are_managed_are_guarded(scene: Scene) -> None:
    """Their tools are not among those of the agent that manages them; each may act as another agent."""
    other = scene.owner.agent("other")
    scene.owner.permit(other, "tools.look")
    plain = ToolCallingAgent(
        tools=[],
        model=Scripted([Call("member", {"task": "look"}, "call-member")], [DONE]),
        managed_agents=[member(scene, LOOK, DROP)],
    )
    guard_agent(plain, scene.guard, agents={"member": other}).run("go")
    assert scene.ran == [("look", "sky")]
    assert scene.guard.flush(30)
    assert {each["agent_id"] for each in scene.owner.entries()} == {other}


@pytest.mark.parametrize("way", ["put", "updated", "exchanged", "joined", "if missing", "in a member"])
def test_whatever_comes_in_later_is_guarded(scene: Scene, way: str) -> None:
    """A tool, or an agent to manage, that an agent is given after it was guarded."""
    made = agent(scene, [DROP], [DONE], tools=[])
    late = {each.name: each for each in tools(scene)}
    match way:
        case "put":
            made.tools["drop"] = late["drop"]
        case "updated":
            made.tools.update(late)
        case "exchanged":
            made.tools = {**late, "final_answer": made.tools["final_answer"]}
        case "joined":
            made.tools |= late
        case "if missing":
            made.tools.setdefault("drop", late["drop"])
        case _:
            made.model.turns = [[Call("member", {"task": "drop"}, "call-member")], [DONE]]
            inside = member(scene, DROP)
            ToolCallingAgent(tools=[], model=Scripted(), managed_agents=[inside])
            made.managed_agents["member"] = inside
    assert made.run("go") == "done"
    assert scene.ran == []
    assert scene.logged() == [("drop", "denied")]


def test_arguments_by_position_are_those_the_tool_takes(scene: Scene) -> None:
    """Its inputs may stand in another order than its parameters: what is asked is what runs."""
    scene.owner.permit(scene.agent_id, "bank.pay")
    paying = guard_agent(
        ToolCallingAgent(tools=[Swapped()], model=Scripted()), scene.guard, tool_actions={"pay": "bank.pay"}
    )
    assert paying.tools["pay"]("eve", 40) == "40 to eve"
    assert scene.guard.flush(30)
    [entry] = scene.owner.entries()
    assert (entry["context"]["to"], entry["context"]["amount"]) == ("eve", 40)
    with pytest.raises(TypeError, match="too many positional arguments"):
        paying.tools["pay"]("eve", 40, "more")


def test_arguments_that_do_not_fit_are_nobodys_business(scene: Scene) -> None:
    """A person would be asked about a call that cannot be made."""
    paying = agent(scene, tools=[Swapped()], kind=ToolCallingAgent)
    for wrong, complaint in (
        ({"to": "eve"}, "missing a required argument: 'amount'"),
        ({"who": 1}, "missing"),
    ):
        with pytest.raises(TypeError, match=complaint):
            paying.tools["pay"](**wrong)
    with pytest.raises(TypeError, match="unexpected keyword argument 'who'"):
        paying.tools["pay"]("eve", 40, who="bob")
    assert scene.logged() == []


def test_a_tool_that_is_called_by_other_names_than_it_goes_on_with(scene: Scene) -> None:
    """By position as well, it is asked about by the names of its inputs."""
    looking = agent(scene, tools=[Encoding()], kind=ToolCallingAgent)
    assert looking.tools["look"]("sky") == "seen sky"
    assert scene.guard.flush(30)
    assert [each["context"]["what"] for each in scene.owner.entries()] == ["sky"]


@pytest.mark.parametrize("managed", [False, True])
def test_a_call_that_waited_through_an_interrupt(scene: Scene, managed: bool) -> None:
    """The run was to end: approved later, the tool does not run, also one of an agent that is managed."""
    paying = ran = agent(scene, [PAY], [DONE], on_hold="wait", name="member", description="pays")
    if managed:
        calls = [Call("member", {"task": "pay"}, "call-member")]
        ran = agent(scene, calls, on_hold="wait", managed_agents=[paying], tools=[])
    with ThreadPoolExecutor() as threads:
        running = threads.submit(ran.run, "go")
        [request] = until(lambda: scene.owner.http.get("/api/approvals").json())
        ran.interrupt()
        scene.approve(request["id"])
        with pytest.raises(AgentError, match="Agent interrupted"):
            running.result(20)
    assert scene.ran == []
    assert "the run was interrupted while the call waited" in str(steps(paying)[0].error)


def test_only_the_frameworks_own_last_word_is_not_asked_about(scene: Scene) -> None:
    """A tool of another class may do anything by that name."""
    made = agent(scene, [DONE])
    assert type(made.tools["final_answer"]) is FinalAnswerTool
    assert made.run("go") == "done"
    assert scene.logged() == []
    made = agent(scene, [DONE], tools=[LastWord()])
    assert "'tools.final_answer' is blocked" in made.run("go")


def test_a_function_that_is_guarded_itself_is_asked_once(scene: Scene) -> None:
    """By its own action."""
    scene.owner.permit(scene.agent_id, "bank.look")

    def look(what: str) -> str:
        """Look at something.

        Args:
            what: what
        """
        return scene.look(what)

    looking = agent(scene, [LOOK], [DONE], tools=[tool(scene.guard.guarded("bank.look")(look))])
    looking.run("go")
    assert scene.ran == [("look", "sky")]
    assert scene.guard.flush(30)
    assert [each["action"] for each in scene.owner.entries()] == ["bank.look"]


def test_a_copied_agent_is_guarded(scene: Scene) -> None:
    """Its tools are the guarded ones."""
    copied = copy.copy(agent(scene, [DROP], [DONE]))
    copied.tools = copy.deepcopy(copied.tools)
    copied.run("go")
    assert scene.ran == []


def test_misuse(scene: Scene) -> None:
    """Each wrong argument is named, with its cure, and the agent stays as it was."""

    class Bare(BaseTool):  # type: ignore[misc]  # the framework leaves it without types
        name = "bare"

        def __call__(self) -> None: ...

    plain = ToolCallingAgent(tools=tools(scene), model=Scripted())
    with pytest.raises(ConfigurationError, match="on_hold is 'pause'; use 'wait', 'raise' or 'notify_model'"):
        guard_agent(plain, scene.guard, on_hold="pause")  # type: ignore[arg-type]  # what it is about
    with pytest.raises(ConfigurationError, match="agent is None; pass a smolagents agent"):
        guard_agent(None, scene.guard)
    with pytest.raises(ConfigurationError, match="not guarded yet"):
        guard_agent(agent(scene), scene.guard)
    plain.tools["bare"] = Bare()
    with pytest.raises(ConfigurationError, match="tool 'bare' is a Bare, which cannot be guarded"):
        guard_agent(plain, scene.guard)
    assert type(plain) is ToolCallingAgent
