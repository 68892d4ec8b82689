"""The hooks' own arguments and places, and agents and tools that are written down, copied and read again."""

import copy
import importlib
from pathlib import Path
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state import State
from haystack.components.generators.chat import MockChatGenerator
from haystack.core.serialization import allow_deserialization_module
from haystack.dataclasses import ChatMessage
from haystack.hooks import hook
from haystack.tools import Tool, create_tool_from_function
from support.frameworks.harness import Call, Scene
from support.frameworks.haystack import called

from toolgate import ConfigurationError, _default, configure, guarded_action
from toolgate_integrations.haystack import GuardHook, RecordHook, guard_hooks

LOOK = Call("look", {"what": "sky"}, "call-look")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"guard": "me"}, "guard is 'me'"),
        ({"on_hold": "later"}, "on_hold is 'later'; use 'pause', 'wait', 'raise' or 'notify_model'"),
        ({"agents": ["me"]}, "agents is"),
        ({"agent": 7}, "agent is 7"),
        ({"tool_actions": 7}, "tool_actions is 7"),
        ({"beside": [RecordHook()]}, "beside is"),
    ],
)
def test_arguments_that_are_wrong(given: dict[str, Any], why: str) -> None:
    """Each is refused in a line that names it."""
    with pytest.raises(ConfigurationError, match=why):
        guard_hooks(**given)


def test_places(scene: Scene) -> None:
    """The guard's hooks are the nearest to the tools, and in no other place."""

    @hook
    def own(state: State) -> None: ...

    hooks = guard_hooks(scene.guard, beside={"before_tool": [own], "after_tool": [own], "on_exit": [own]})
    assert [type(each) for each in hooks["before_tool"]] == [type(own), GuardHook]
    assert [type(each) for each in hooks["after_tool"]] == [RecordHook, type(own)]
    assert hooks["on_exit"] == [own]
    for point, misplaced in (("after_tool", GuardHook(scene.guard)), ("before_tool", RecordHook())):
        with pytest.raises(ValueError, match="only supports"):
            Agent(chat_generator=MockChatGenerator("done"), hooks={point: [misplaced]})


@pytest.fixture
def guarded_look(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A guarded function of a module that can be imported by its name; the environment's guard is the scene's."""
    monkeypatch.setattr(_default, "_default", None)
    configure(scene.owner.url, scene.owner.key, scene.agent_id)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "lookout.py").write_text(
        "from toolgate import guarded\n\n\n@guarded('tools.look')\ndef look(what: str) -> str:\n"
        "    '''Look at something.'''\n    return f'seen {what}'\n"
    )
    yield importlib.import_module("lookout").look
    assert _default.default_guard().flush(30)
    _default.default_guard().close()


def test_agents_that_are_written_down(scene: Scene, guarded_look: Any) -> None:
    """An agent and its tools are read again as they were written, guarded functions too, and guarded as before."""
    for module in ("toolgate_integrations.*", "lookout.*"):
        allow_deserialization_module(module)
    tool = create_tool_from_function(guarded_look)
    copied = copy.deepcopy(tool)
    assert guarded_action(copied.function) == "tools.look"
    assert Tool.from_dict(tool.to_dict()).function is guarded_look
    hooks = guard_hooks(agent="scout", agents={"scout": scene.agent_id}, on_hold="notify_model")
    model = MockChatGenerator(responses=[called(LOOK), "done"])
    agent = Agent(chat_generator=model, tools=[copied], hooks=hooks, raise_on_tool_invocation_failure=True)
    again = Agent.from_dict(agent.to_dict())
    assert again.run([ChatMessage.from_user("go")])["last_message"].text == "done"
    assert _default.default_guard().flush(30)
    assert scene.logged() == [("look", "success")]
    assert again.to_dict() == agent.to_dict()


def test_hooks_that_cannot_be_written_down(scene: Scene) -> None:
    """A guard, with its key, is in no file, and a function is not either: that is said, and nothing left out."""
    for given in ({"guard": scene.guard}, {"tool_actions": str.upper}):
        with pytest.raises(ConfigurationError, match="the hook cannot be serialized") as raised:
            GuardHook(**given).to_dict()
        assert scene.owner.key not in str(raised.value)
