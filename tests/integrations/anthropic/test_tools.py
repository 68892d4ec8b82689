"""Which tools can be guarded, and what they are besides their calls."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from anthropic import Anthropic
from anthropic.lib.tools import BetaBuiltinFunctionTool, BetaRunnableToolset, ToolError
from support.frameworks.anthropic import ASKED, async_tools_of, tools_of
from support.frameworks.harness import Call, Scene
from support.frameworks.messages_api import MessagesAPI

from toolgate import ConfigurationError
from toolgate_integrations.anthropic import guard_tools


def test_definitions_are_the_tools_own(scene: Scene) -> None:
    """The model is shown what it would be shown without the guard; tools of the provider's stay as they are."""
    search = {"type": "web_search_20250305", "name": "web_search"}
    plain = tools_of(scene)
    guarded = guard_tools([*plain, search], scene.guard)
    assert [each.to_dict() for each in guarded[:-1]] == [each.to_dict() for each in plain]
    assert guarded[-1] is search
    assert copy.copy(guarded[0]).name == guarded[0].description.split()[0].lower() == "look"


def test_tools_of_the_sdks_own_kinds(scene: Scene, api: MessagesAPI, client: Anthropic) -> None:
    """A tool that is no function, such as the memory tool, is asked about as all others."""

    class Look(BetaBuiltinFunctionTool):
        def to_dict(self) -> Any:
            return {"type": "memory_20250818", "name": "look"}

        def call(self, input: object) -> str:  # noqa: A002 - the SDK's signature
            return scene.look(str(input))

    api.say([Call("look", {"command": "view"}, "call-1")])
    tools = guard_tools([Look()], scene.guard)
    client.beta.messages.tool_runner(
        **ASKED, messages=[{"role": "user", "content": "go"}], tools=tools
    ).until_done()
    assert scene.ran == [("look", "{'command': 'view'}")]
    assert scene.logged() == [("look", "success")]


def test_tools_of_the_other_kind(scene: Scene, client: Anthropic) -> None:
    """The SDK refuses coroutine functions in a synchronous runner, guarded ones too."""
    with pytest.raises(TypeError, match="async tool"):
        client.beta.messages.tool_runner(
            **ASKED, messages=[], tools=guard_tools(async_tools_of(scene), scene.guard)
        )


async def test_arguments_that_are_no_object(scene: Scene) -> None:
    """What cannot be shown to a person runs nothing."""
    with pytest.raises(ToolError, match="not a JSON object"):
        guard_tools(tools_of(scene), scene.guard)[0].call(["sky"])
    with pytest.raises(ToolError, match="not a JSON object"):
        await guard_tools(async_tools_of(scene), scene.guard)[0].call("sky")
    assert scene.ran == []


class Browser(BetaRunnableToolset):
    """A toolset: its runner calls no tool of it, but itself."""

    toolset_name = "browser"

    def to_dict(self) -> Any:
        return {"type": "browser_toolset_20260801"}

    def call(self, context: Any, name: str, input: Any) -> str:  # noqa: A002 - the SDK's signature
        return name


def nothing() -> None:
    """A function that no tool was made of."""


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (lambda tools: {"tools": [nothing]}, "is not a tool; create one with beta_tool"),
        (lambda tools: {"tools": [Browser()]}, "the toolset 'browser' cannot be guarded"),
        (lambda tools: {"tools": guard_tools(tools)}, "'look' is already guarded"),
        (lambda tools: {"tools": tools, "guard": "me"}, "guard is 'me'"),
        (lambda tools: {"tools": tools, "agent": 7}, "agent is 7"),
        (
            lambda tools: {"tools": tools, "on_hold": "later"},
            "use 'pause', 'wait', 'raise' or 'notify_model'",
        ),
        (lambda tools: {"tools": tools, "agents": 7}, "agents is 7"),
    ],
)
def test_what_cannot_be_guarded(scene: Scene, given: Callable[[Any], Any], why: str) -> None:
    """It is refused when the tools are guarded, in a line that names it."""
    with pytest.raises(ConfigurationError, match=why):
        guard_tools(**given(tools_of(scene)))
