"""Tools in the code that a model wrote: it may call them in any way it can think of."""

import pickle
from typing import Any

import pytest
from smolagents import CodeAgent, LocalPythonExecutor, LogLevel, PythonExecutor, ToolCallingAgent
from smolagents.tools import get_tools_definition_code
from support.frameworks.harness import Call, Scene
from support.frameworks.smolagents import DONE, Scripted, agent, steps, tools

from toolgate import ConfigurationError, acting_as
from toolgate_integrations.smolagents import guard_agent

END = "final_answer('done')"


class Elsewhere(PythonExecutor):
    """Runs code on another machine, as far as anybody here can tell."""

    def send_tools(self, tools: Any) -> None: ...

    def send_variables(self, variables: Any) -> None: ...

    def __call__(self, code_action: str) -> Any: ...


def test_code_stops_at_a_refused_call(scene: Scene) -> None:
    """Told as an answer, the lines after it would go on with the refusal as with a result."""
    written = "look('sky')\nkept = drop('users')\nlook(kept)"
    asking = agent(scene, written, END)
    assert asking.run("go") == "done"
    assert scene.ran == [("look", "sky")]
    assert "ToolRefused: Not done: 'tools.drop' is blocked" in str(steps(asking)[0].error)


@pytest.mark.parametrize(
    "written",
    [
        "drop(table='users')",
        "drop({'table': 'users'})",
        "drop.forward('users')",
        "also = drop\nalso('users')",
        "list(map(drop, ['users']))",
        "drop.tool('users')",
        "drop.inner('users')",
        "drop._tool('users')",
        "getattr(drop, '_way').tool('users')",
        "member.tools['drop']('users')",
        "member.bridge._names._tool_actions = {'drop': 'tools.look'}\ndrop('users')",
        "member.managed_agents['sub'].bridge._names._tool_actions = {'drop': 'tools.look'}\ndrop('users')",
        "try:\n    drop('users')\nexcept Exception as error:\n    error.tool('users')",
    ],
)
def test_no_code_reaches_the_tool_behind_its_guard(scene: Scene, written: str) -> None:
    """Whatever the code calls, asks for or looks into, also in the agents it may call, where it is known who asks."""
    sub = ToolCallingAgent(tools=[], model=Scripted(), name="sub", description="helps")
    inside = ToolCallingAgent(
        tools=tools(scene), model=Scripted(), name="member", description="helps", managed_agents=[sub]
    )
    asking = agent(scene, written, END, managed_agents=[inside])
    asking.run("go")
    assert scene.ran == []
    step = steps(asking)[0]
    assert step.error is not None or "Not done" in step.observations


def test_a_guarded_tool_has_nothing_of_the_tool_in_it(scene: Scene) -> None:
    """Code may read any attribute that has no two underscores on both sides."""
    guarded = agent(scene, END).tools["drop"]
    behind = [each for each in vars(guarded).values() if callable(each) or hasattr(each, "tool")]
    assert behind == []


def test_code_acts_as_whoever_called_the_agent(scene: Scene) -> None:
    """The framework runs it in a thread that knows nothing of its caller: another agent would be asked about."""
    other = scene.owner.agent("other")
    scene.owner.permit(other, "tools.drop")
    inside = ToolCallingAgent(
        tools=tools(scene),
        model=Scripted([Call("drop", {"table": "more"}, "call-drop")], [DONE]),
        name="member",
        description="helps",
    )
    dropping = agent(scene, "drop('users')\nmember('go')", END, managed_agents=[inside])
    with acting_as(other):
        dropping.run("go")
    assert scene.ran == [("drop", "users"), ("drop", "more")]
    assert scene.guard.flush(30)
    assert {each["agent_id"] for each in scene.owner.entries()} == {other}


def test_what_code_defines_acts_as_whoever_calls_it(scene: Scene) -> None:
    """Functions and names of an earlier run are kept: they do not act as that run's caller in another's."""
    other = scene.owner.agent("other")
    scene.owner.permit(other, "tools.drop")
    defined = f"also = drop\ndef helper(table):\n    return drop(table)\n{END}"
    dropping = agent(scene, defined, "also('users')", "helper('users')", END)
    with acting_as(other):
        dropping.run("go")
    dropping.run("go")
    assert scene.ran == []
    assert scene.logged() == [("drop", "denied")] * 2


def test_code_that_ran_before_the_agent_was_guarded(scene: Scene) -> None:
    """What it defined would call the tools themselves: refused."""
    plain = CodeAgent(tools=tools(scene), model=Scripted(END), verbosity_level=LogLevel.OFF)
    plain.run("go")
    with pytest.raises(ConfigurationError, match="guard the agent before its first run"):
        guard_agent(plain, scene.guard)


def test_the_tools_of_another_agent(scene: Scene) -> None:
    """Guarded for one that reads refusals, they stop the code of this one all the same, and act for it."""
    other = scene.owner.agent("other")
    model_calls = guard_agent(ToolCallingAgent(tools=tools(scene), model=Scripted()), scene.guard)
    plain = CodeAgent(
        tools=[model_calls.tools[name] for name in ("look", "drop")],
        model=Scripted("kept = drop('users')\nlook(kept)", END),
        name="treasurer",
        verbosity_level=LogLevel.OFF,
    )
    guard_agent(plain, scene.guard, agents={"treasurer": other}).run("go")
    assert scene.ran == []
    assert "ToolRefused: Not done: 'tools.drop' is blocked" in str(steps(plain)[0].error)
    assert scene.guard.flush(30)
    assert {each["agent_id"] for each in scene.owner.entries()} == {other}


def test_code_is_stopped_after_its_time(scene: Scene) -> None:
    """As the framework would have it."""
    slow = agent(scene, "look('sky')", executor_kwargs={"timeout_seconds": 1e-6})
    slow.run("go", max_steps=1)
    assert "maximum execution time of 1e-06 seconds" in str(steps(slow)[0].error)


def test_code_that_would_be_stopped_while_it_waits(scene: Scene) -> None:
    """The model would read that time was up, and the tool would run all the same once it was approved: refused."""
    with pytest.raises(ConfigurationError, match="may run for only 30 seconds, but a call can wait longer"):
        agent(scene, END, on_hold="wait")
    made = agent(scene, END, on_hold="wait", executor_kwargs={"timeout_seconds": None})
    with pytest.raises(ConfigurationError, match="may run for only 5 seconds"):
        made.python_executor = LocalPythonExecutor([], timeout_seconds=5)
    waiting = agent(scene, kind=ToolCallingAgent, on_hold="wait", name="member", description="waits")
    with pytest.raises(ConfigurationError, match="may run for only 30 seconds"):
        agent(scene, END, managed_agents=[waiting])
    made = agent(scene, END, managed_agents=[waiting], executor_kwargs={"timeout_seconds": None})
    with pytest.raises(ConfigurationError, match="may run for only 5 seconds"):
        made.python_executor = LocalPythonExecutor([], timeout_seconds=5)


def test_code_that_runs_elsewhere(scene: Scene) -> None:
    """Other executors are sent the tools' source: nobody would be asked about their calls."""
    plain = CodeAgent(tools=tools(scene), model=Scripted(END), executor=Elsewhere())
    with pytest.raises(ConfigurationError, match="the executor 'Elsewhere' runs code outside this process"):
        guard_agent(plain, scene.guard)
    assert type(plain) is CodeAgent
    made = agent(scene, END)
    with pytest.raises(ConfigurationError, match="the executor 'Elsewhere' runs code outside this process"):
        made.python_executor = Elsewhere()


def test_a_guarded_tool_is_neither_shipped_nor_saved(scene: Scene, tmp_path: Any) -> None:
    """What would be written is its source, without the guard."""
    made = agent(scene, END)
    with pytest.raises(ConfigurationError, match="'look' is guarded, but would be saved without"):
        made.to_dict()
    with pytest.raises(Exception, match="GuardedTool"):
        get_tools_definition_code(made.tools)
    copied = pickle.loads(pickle.dumps(made.tools["look"]))
    with pytest.raises(ConfigurationError, match="'look' was created in another process"):
        copied("sky")
    assert scene.ran == []
