"""What the CLI does beside calling a hook: each would let a call run that nobody was asked about."""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import AgentDefinition, HookMatcher, PermissionResultAllow, PermissionResultDeny
from support.frameworks.claude_agent_sdk import agent, named, read, run, seen_as
from support.frameworks.harness import Call, Scene
from support.waiting import eventually

from toolgate.testing import FakeGateway
from toolgate_integrations.claude_agent_sdk import Gate

LOOK = Call("look", {"what": "sky"}, "call-look")
WAITING = {"on_hold": "wait"}


def pay(to: str, amount: int) -> Call:
    return Call("pay", {"to": to, "amount": amount}, f"call-{to}")


def logged(scene: Scene, gateway: FakeGateway) -> list[tuple[str, str, Any]]:
    """Each entry's action, status, and what it says of an error."""
    assert scene.guard.flush(30)
    return [
        (each.action, each.status, (each.context.get("error") or {}).get("message"))
        for each in gateway.entries
    ]


async def waits(gateway: FakeGateway, number: int) -> None:
    """Until so many calls wait for a person."""

    async def so_many() -> bool:
        return len(gateway.pending()) == number

    await eventually(so_many)


@pytest.mark.parametrize("broken", [pytest.param("tool_actions", marks=pytest.mark.slow), "hook"])
async def test_a_guard_that_fails_lets_nothing_run(
    scene: Scene,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The CLI takes a hook that raises for one without an opinion; here its call is not done, and the model reads so."""

    def fail(*_: object, **__: object) -> Any:
        raise RuntimeError("sk-secret")

    guarding = {"tool_actions": fail} if broken == "tool_actions" else {}
    if broken == "hook":
        monkeypatch.setattr(Gate, "_asked", fail)
    async with agent(scene, tmp_path, [LOOK], guarding=guarding) as (client, api):
        assert (await run(client)).result == "done"
    assert scene.ran == []
    assert api.read["call-look"].is_error
    if broken == "tool_actions":
        assert read(api)["call-look"] == "Not done: the guard failed with RuntimeError."
        assert "was not checked" in caplog.text


async def test_raise_ends_the_run_of_a_pending_call(
    scene: Scene, gateway: FakeGateway, tmp_path: Path
) -> None:
    """The CLI ends the run without an exception, and does not call the model again."""
    gateway.require_approval("bank.pay")
    guarding = {"on_hold": "raise"}
    async with agent(scene, tmp_path, [pay("eve", 40)], guarding=guarding) as (client, api):
        ended = await run(client)
    assert (scene.ran, api.read) == ([], {})
    assert ended.result != "done"
    assert logged(scene, gateway) == [("bank.pay", "pending", None)]


@pytest.mark.slow
async def test_the_users_own_permission_still_counts(
    scene: Scene, gateway: FakeGateway, tmp_path: Path
) -> None:
    """What the gateway allows, edited or not, is no permission of the user's: without one it does not run."""
    gateway.require_approval("bank.pay")
    calls = [LOOK, pay("eve", 40)]
    async with agent(scene, tmp_path, calls, guarding=WAITING, allowed_tools=[]) as (client, api):
        going = asyncio.create_task(run(client))
        await waits(gateway, 1)
        gateway.approve(context={"to": "eve", "amount": 25})
        assert (await going).result == "done"
    assert scene.ran == []
    assert "haven't granted it" in read(api)["call-look"]
    assert "haven't granted it" in read(api)["call-eve"]
    entries = [(action, status, str(why)[:7]) for action, status, why in logged(scene, gateway)]
    assert [each for each in entries if each[1] != "pending"] == [
        ("bank.look", "failed", "not run"),
        ("bank.pay", "failed", "not run"),
    ]


async def test_what_can_use_tool_changes_is_asked_about(
    scene: Scene, gateway: FakeGateway, tmp_path: Path
) -> None:
    """The CLI asks it after the hooks, and runs what it says: here the gateway is asked about that too."""

    async def permit(name: str, arguments: dict[str, Any], context: Any) -> Any:
        if arguments["to"] == "ann":
            return PermissionResultDeny(message="not ann")
        return PermissionResultAllow(updated_input={**arguments, "amount": arguments["amount"] * 2})

    calls = [pay("eve", 40), pay("bob", 60), pay("ann", 1)]
    given: Any = {"guarding": WAITING, "allowed_tools": [], "can_use_tool": permit}
    async with agent(scene, tmp_path, calls, **given) as (client, api):
        await run(client)
        seen, entries = list(gateway.checks), logged(scene, gateway)
        # What a person approved lets the call through once, and what is made of it is another.
        gateway.require_approval("bank.pay", then="approved")
        api.say(named(pay("dan", 10)))
        await run(client)
    assert scene.ran == [("pay", "eve", 80), ("pay", "dan", 20)]
    assert read(api)["call-eve"] == "paid 80 to eve"
    assert read(api)["call-bob"].startswith("Not done: 'bank.pay' is blocked.")
    assert read(api)["call-ann"] == "not ann"
    assert [(each.context["amount"], each.outcome) for each in seen] == [
        (40, "allowed"),
        (80, "allowed"),
        (60, "allowed"),
        (120, "blocked"),
        (1, "allowed"),
    ]
    assert [(status, str(why)[:7]) for _, status, why in entries] == [
        ("failed", "not run"),
        ("success", "None"),
        ("failed", "not run"),
        ("denied", "None"),
        ("failed", "not run"),
    ]


@pytest.mark.slow
async def test_a_hook_beside_it_changes_nothing(scene: Scene, tmp_path: Path) -> None:
    """Hooks run at the same time, and the last to change the arguments wins: a hook of the user's that does denies."""

    async def double(told: Any, *_: Any) -> Any:
        if told["tool_input"]["to"] != "eve":
            return {}
        return {
            "hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"to": "eve", "amount": 80}}
        }

    async def permit(told: Any, *_: Any) -> Any:
        changed = {"updatedInput": {"to": "bob", "amount": 80}} if told["tool_input"]["to"] == "bob" else {}
        decision = {"behavior": "allow", **changed}
        return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}

    hooks = {"PreToolUse": [HookMatcher(hooks=[double])], "PermissionRequest": [HookMatcher(hooks=[permit])]}
    calls = [pay("eve", 40), pay("bob", 40), pay("ann", 40)]
    async with agent(scene, tmp_path, calls, hooks=hooks, allowed_tools=[]) as (client, api):
        await run(client)
    assert scene.ran == [("pay", "ann", 40)]
    for name in ("eve", "bob"):
        assert read(api)[f"call-{name}"].startswith("Not done: another hook changed the call's arguments")


@pytest.mark.slow
async def test_what_a_hook_of_a_settings_file_changed_is_told(
    scene: Scene, gateway: FakeGateway, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing here sees such a hook before the tool has run; the log says that it was not what was asked about."""
    said = {
        "hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"to": "eve", "amount": 80}}
    }
    (tmp_path / "hook.py").write_text(f"print({json.dumps(json.dumps(said))})")
    hook = {"type": "command", "command": f"{sys.executable} hook.py"}
    (tmp_path / ".claude").mkdir()
    settings = {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [hook]}]}}
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps(settings))
    async with agent(scene, tmp_path, [pay("eve", 40)], setting_sources=["project"]) as (client, _):
        await run(client)
    assert scene.ran == [("pay", "eve", 80)]
    [(_, status, why)] = logged(scene, gateway)
    assert (status, why) == (
        "failed",
        "the tool ran with arguments that differ from the checked arguments: amount",
    )
    assert "ran with arguments that differ" in caplog.text


async def test_nothing_turns_the_hooks_off(scene: Scene, tmp_path: Path) -> None:
    """With one variable in the environment, or in a settings file, the CLI calls no hook at all."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "settings.json").write_text(
        '{"env": {"CLAUDE_CODE_SIMPLE": "1"}, "disableAllHooks": true}'
    )
    off: Any = {"env": {"CLAUDE_CODE_SIMPLE": "1"}, "setting_sources": ["user"]}
    async with agent(scene, tmp_path, [Call("drop", {"table": "users"}, "call-drop")], **off) as (
        client,
        api,
    ):
        await run(client)
    assert scene.ran == []
    assert "is blocked" in read(api)["call-drop"]


async def test_tools_of_the_cli_itself(scene: Scene, gateway: FakeGateway, tmp_path: Path) -> None:
    """Its own tools are asked about under `tools.<name>`, and a no counts in whatever mode of permissions.

    A command that stands in a skill would be run with the skill, without any hook: it is not.
    """
    gateway.allow("tools.Write")
    gateway.allow("tools.Skill")
    skill = tmp_path / "config" / "skills" / "tidy" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: tidy\ndescription: tidies\n---\nIt is !`touch past-the-hooks` now.\n")
    tidy = Call("Skill", {"skill": "tidy"}, "call-skill")
    write = Call("Write", {"file_path": str(tmp_path / "kept"), "content": "x"}, "call-write")
    bash = Call("Bash", {"command": "touch dropped", "timeout": "5000"}, "call-bash")
    more: Any = {
        "tools": ["Write", "Bash", "Skill"],
        "setting_sources": ["user"],
        "permission_mode": "bypassPermissions",
        "env": {"IS_SANDBOX": "1"},
    }
    async with agent(scene, tmp_path, **more) as (client, api):
        api.say([write, bash, tidy])
        await run(client)
    assert read(api)["call-skill"].startswith("Launching skill")
    made = [(tmp_path / each).exists() for each in ("kept", "dropped", "past-the-hooks")]
    assert made == [True, False, False]
    assert [(action, status) for action, status, _ in logged(scene, gateway)] == [
        ("tools.Write", "success"),
        ("tools.Bash", "denied"),
        ("tools.Skill", "success"),
    ]


async def test_sub_agents_act_as_themselves(scene: Scene, tmp_path: Path) -> None:
    """A sub-agent's calls go through the same hooks; they are asked about as the agent that is named for its type."""
    gateway = FakeGateway(allow=["tools.Agent", "bank.look"])
    scene.guard = gateway.guard("main")
    given: Any = {
        "agents": {
            "helper": AgentDefinition(description="looks", prompt="You look", tools=[seen_as("look")])
        },
        "tools": ["Agent"],
        "allowed_tools": ["Agent", seen_as("look")],
    }
    task = {"description": "d", "prompt": "look up", "subagent_type": "helper", "run_in_background": False}
    async with agent(scene, tmp_path, guarding={"agents": {"helper": "helper-1"}}, **given) as (client, api):
        api.say([Call("Agent", task, "call-agent")])
        api.script("look up", [Call(seen_as("look"), {"what": "sky"}, "call-look")])
        await run(client)
    assert scene.ran == [("look", "sky")]
    assert [(each.action, each.agent_id) for each in gateway.checks] == [
        ("tools.Agent", "main"),
        ("bank.look", "helper-1"),
    ]
    assert len({each.run_id for each in gateway.checks}) == 1


@pytest.mark.parametrize("way", ["interrupt", pytest.param("leave", marks=pytest.mark.slow)])
async def test_a_wait_that_is_given_up_is_withdrawn(
    scene: Scene, gateway: FakeGateway, tmp_path: Path, way: str
) -> None:
    """Who interrupts or leaves the agent while a call waits has given the call up: nobody needs to decide about it."""
    gateway.require_approval("bank.pay")
    async with agent(scene, tmp_path, [pay("eve", 40)], guarding=WAITING) as (client, _):
        await client.query("go")
        await waits(gateway, 1)
        if way == "interrupt":
            await client.interrupt()
            await waits(gateway, 0)
    await waits(gateway, 0)
    assert scene.ran == []


async def test_what_the_model_was_told_passes_in_another_process(
    scene: Scene, gateway: FakeGateway, tmp_path: Path
) -> None:
    """While a person decides nothing needs to run: the session is resumed, and the same call goes through once."""
    gateway.require_approval("bank.pay")
    again = [replace(pay("eve", 40), id=f"call-{time}") for time in ("again", "thrice")]
    async with agent(scene, tmp_path, [pay("eve", 40)]) as (client, api):
        session_id = (await run(client)).session_id
    assert read(api)["call-eve"].startswith("Not done yet")
    gateway.approve()
    async with agent(scene, tmp_path, [pay("eve", 40)], again[:1], again[1:], resume=session_id) as (
        client,
        api,
    ):
        await run(client, "try again")
    assert scene.ran == [("pay", "eve", 40)]
    assert read(api)["call-again"] == "paid 40 to eve"
    assert read(api)["call-thrice"].startswith("Not done yet")
    assert len({each.run_id for each in gateway.checks}) == 1
