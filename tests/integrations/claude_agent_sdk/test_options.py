"""What `guard_options` makes of options, and what it refuses."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)
from support.frameworks.harness import Scene

from toolgate import ConfigurationError
from toolgate.testing import FakeGateway
from toolgate_integrations.claude_agent_sdk import guard_options

DAY = 24 * 60 * 60


async def own(*_: Any) -> Any:
    return {}


def test_the_hook_fails_closed_and_has_time(scene: Scene) -> None:
    """The CLI runs a tool whose hook raises, unless it is told otherwise, and gives a hook a minute."""
    made = guard_options(guard=scene.guard)
    assert made.hooks is not None
    [asking] = made.hooks["PreToolUse"]
    assert (asking.matcher, asking.on_failure) == (None, "block")
    assert asking.timeout is not None
    assert asking.timeout > 7 * DAY
    # More, in milliseconds, is no time at all to a timer of JavaScript.
    assert asking.timeout * 1000 < 2**31


def test_the_users_options_stay_as_they_are(scene: Scene, tmp_path: Path) -> None:
    """Hooks, settings and environment of the user's own are kept beside the guard's, in a copy."""
    (tmp_path / "mine.json").write_text('\ufeff{"env": {"A": "1"}, "cleanupPeriodDays": 3}', encoding="utf-8")
    given = ClaudeAgentOptions(
        hooks={
            "PreToolUse": [HookMatcher(matcher="Bash", hooks=[own], timeout=5)],
            "Stop": [HookMatcher(hooks=[own])],
        },
        settings="mine.json",
        cwd=tmp_path,
        env={"B": "2"},
    )
    made = guard_options(given, guard=scene.guard)
    assert given.hooks is not None
    assert [len(each) for each in given.hooks.values()] == [1, 1]
    assert (given.settings, given.env) == ("mine.json", {"B": "2"})
    assert made.hooks is not None
    assert [(each.matcher, each.timeout) for each in made.hooks["PreToolUse"][1:]] == [("Bash", 5)]
    assert made.hooks["Stop"] == given.hooks["Stop"]
    assert json.loads(str(made.settings)) == {
        "disableSkillShellExecution": True,
        "env": {"A": "1", "CLAUDE_CODE_SIMPLE": "0"},
        "cleanupPeriodDays": 3,
    }
    assert made.env == {"B": "2", "CLAUDE_CODE_SIMPLE": "0"}
    assert made.can_use_tool is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"options": {"env": {"KEY": "sk-secret"}}}, "options is a 'dict'"),
        ({"guard": "me"}, "guard is 'me'"),
        ({"on_hold": "defer"}, "on_hold is 'defer'; use 'wait', 'raise' or 'notify_model'"),
        ({"agents": ["helper"]}, "agents is"),
        ({"options": ClaudeAgentOptions(extra_args={"bare": None})}, "extra_args contains 'bare'"),
        ({"options": ClaudeAgentOptions(extra_args={"settings": "{}"})}, "use options.settings"),
        (
            {"options": ClaudeAgentOptions(extra_args={'settings={"a": "sk-secret"}': None})},
            "use options.settings",
        ),
        ({"options": ClaudeAgentOptions(settings='{"env": "sk-secret"}')}, "options.settings cannot be read"),
        ({"options": ClaudeAgentOptions(settings='["sk-secret"]')}, "options.settings cannot be read"),
        ({"options": ClaudeAgentOptions(settings="/nowhere/sk-secret")}, "No such file"),
    ],
)
def test_what_cannot_be_is_refused(given: Any, told: str) -> None:
    """An argument of the wrong kind, or options under which no hook is called: said at once, and nothing secret shown."""
    with pytest.raises(ConfigurationError) as refused:
        guard_options(**given)
    assert told in str(refused.value)
    assert "sk-secret" not in str(refused.value)


def test_options_are_guarded_once(scene: Scene) -> None:
    """Guarded twice, every call would be asked about twice."""
    with pytest.raises(ConfigurationError, match="already guarded"):
        guard_options(guard_options(guard=scene.guard), guard=scene.guard)


@pytest.mark.parametrize(
    ("name", "more", "action"),
    [
        ("Bash", {}, "tools.Bash"),
        ("mcp__bank__pay", {"mcp_server": {"name": "bank", "source": "sdk"}}, "bank.pay"),
        (
            "mcp__my_bank_x__pay__now",
            {"mcp_server": {"name": "my bank.x", "source": "project"}},
            "my%20bank.x.pay__now",
        ),
        ("mcp__a__b__pay", {"mcp_server": {"name": "a__b", "source": "user"}}, "a__b.pay"),
        # As it would be told by a CLI that does not name servers.
        ("mcp__bank__pay", {}, "bank.pay"),
    ],
)
async def test_names_of_actions(
    gateway: FakeGateway, scene: Scene, name: str, more: Any, action: str
) -> None:
    """A tool of an MCP server has the server's name as it is configured here, the others are `tools.<name>`."""
    made = guard_options(guard=scene.guard)
    assert made.hooks is not None
    [ask] = made.hooks["PreToolUse"][0].hooks
    told: Any = {
        "tool_name": name,
        "tool_input": {"to": "eve"},
        "tool_use_id": "1",
        "session_id": "s",
        **more,
    }
    said: Any = await ask(told, "1", {"signal": None})
    assert said["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert [(each.action, each.run_id) for each in gateway.checks] == [(action, "s")]


@pytest.mark.parametrize("sessions", [["one"], ["one", "other"]])
async def test_whose_call_was_changed_must_be_clear(scene: Scene, sessions: list[str]) -> None:
    """`can_use_tool` is told no session: where two have a call of the same id, what it changed can be neither's."""

    async def change(*_: Any) -> Any:
        return PermissionResultAllow(updated_input={"what": "sea"})

    made = guard_options(
        ClaudeAgentOptions(can_use_tool=change), guard=scene.guard, tool_actions={"X": "bank.look"}
    )
    assert made.hooks is not None
    assert made.can_use_tool is not None
    [ask] = made.hooks["PreToolUse"][0].hooks
    for session in sessions:
        told: Any = {
            "tool_name": "X",
            "tool_input": {"what": "sky"},
            "tool_use_id": "1",
            "session_id": session,
        }
        assert await ask(told, "1", {"signal": None}) == {}
    said = await made.can_use_tool("X", {"what": "sky"}, ToolPermissionContext(tool_use_id="1"))
    assert isinstance(said, PermissionResultAllow if sessions == ["one"] else PermissionResultDeny)


@pytest.mark.parametrize("returned", [True, False])
async def test_arguments_that_are_changed_where_they_are(
    scene: Scene, gateway: FakeGateway, returned: bool
) -> None:
    """The SDK runs what `can_use_tool` made of the mapping it was handed, returned or not: that is asked about too."""

    async def change(_: str, arguments: dict[str, Any], __: Any) -> Any:
        arguments["what"] = "sea"
        return PermissionResultAllow(updated_input=arguments if returned else None)

    async def hook(told: Any, *_: Any) -> Any:
        told["tool_input"]["what"] = "sea"
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": told["tool_input"]}}

    made = guard_options(
        ClaudeAgentOptions(can_use_tool=change, hooks={"PreToolUse": [HookMatcher(hooks=[hook])]}),
        guard=scene.guard,
        tool_actions={"X": "bank.look"},
    )
    assert made.hooks is not None
    assert made.can_use_tool is not None
    told: Any = {"tool_name": "X", "tool_input": {"what": "sky"}, "tool_use_id": "1", "session_id": "one"}
    [[ask], [own_hook]] = [each.hooks for each in made.hooks["PreToolUse"]]
    assert await ask(deepcopy(told), "1", {"signal": None}) == {}
    await made.can_use_tool("X", {"what": "sky"}, ToolPermissionContext(tool_use_id="1"))
    assert [each.context["what"] for each in gateway.checks] == ["sky", "sea"]
    said: Any = await own_hook(deepcopy(told), "1", {"signal": None})
    assert said["hookSpecificOutput"]["permissionDecision"] == "deny"
