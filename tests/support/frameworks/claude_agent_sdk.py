"""Claude Agent SDK with the CLI it brings along, which talks to a scripted Messages API on this machine."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from inspect import get_annotations
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    create_sdk_mcp_server,
    tool,
)

from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
from support.frameworks.messages_api import MessagesAPI
from toolgate_integrations.claude_agent_sdk import guard_options

TOOLS = ("look", "pay", "drop", "burn")


def seen_as(name: str) -> str:
    """What the agent calls a tool of the bank."""
    return f"mcp__bank__{name}"


def named(*made: Call) -> list[Call]:
    """Calls of the scene's tools, as the model makes them."""
    return [replace(each, tool=seen_as(each.tool)) for each in made]


def bank(scene: Scene) -> Any:
    """The scene's tools, as an MCP server of this process."""

    def served(function: Any) -> Any:
        async def handler(arguments: dict[str, Any]) -> dict[str, Any]:
            return {"content": [{"type": "text", "text": function(**arguments)}]}

        takes = {name: kind for name, kind in get_annotations(function).items() if name != "return"}
        return tool(function.__name__, str(function.__doc__), takes)(handler)

    return create_sdk_mcp_server("bank", tools=[served(each) for each in scene.tools.values()])


def options(scene: Scene, api: MessagesAPI, folder: Path, **given: Any) -> ClaudeAgentOptions:
    """An agent with the bank's tools, all of which its own permissions allow; nothing of this machine's reaches it."""
    # The CLI is given this process's environment too.
    here = [
        each
        for each in os.environ
        if each.upper().startswith(("CLAUDE", "ANTHROPIC")) or "PROXY" in each.upper()
    ]
    env = {
        **dict.fromkeys(here, ""),
        "ANTHROPIC_BASE_URL": api.url,
        "ANTHROPIC_API_KEY": "sk-none",
        "HOME": str(folder),
        "CLAUDE_CONFIG_DIR": str(folder / "config"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        **given.pop("env", {}),
    }
    standard: dict[str, Any] = {
        "mcp_servers": {"bank": bank(scene)},
        "allowed_tools": [seen_as(each) for each in TOOLS],
        "tools": [],
        "setting_sources": [],
        "cwd": folder,
        "model": "claude-of-nobody",
        "stderr": lambda _: None,
    }
    return ClaudeAgentOptions(**{**standard, **given}, env=env)


async def run(client: ClaudeSDKClient, prompt: str = "go") -> ResultMessage:
    """One turn of a conversation, to its end."""
    await client.query(prompt)
    [result] = [each async for each in client.receive_response() if isinstance(each, ResultMessage)]
    return result


def read(api: MessagesAPI) -> dict[str, str]:
    """What the model read of each call, without what the CLI puts before the words of a hook."""
    return {
        call_id: said.text.partition(" hook error: ")[2] if said.text.startswith("PreToolUse:") else said.text
        for call_id, said in api.read.items()
    }


@asynccontextmanager
async def agent(
    scene: Scene,
    folder: Path,
    *turns: Sequence[Call],
    guarding: Mapping[str, Any] | None = None,
    **given: Any,
) -> AsyncIterator[tuple[ClaudeSDKClient, MessagesAPI]]:
    """A guarded agent that is scripted to make the calls of each turn, and the API it talks to."""
    with MessagesAPI(*(named(*each) for each in turns)) as api:
        made = guard_options(options(scene, api, folder, **given), guard=scene.guard, **(guarding or {}))
        async with ClaudeSDKClient(made) as client:
            yield client, api


class ClaudeSession:
    """One conversation with one process of the CLI."""

    def __init__(self, scene: Scene, folder: Path, on_hold: OnHold) -> None:
        self._api = MessagesAPI()
        self._api.__enter__()
        made: Any = guard_options(
            options(scene, self._api, folder),
            guard=scene.guard,
            on_hold=on_hold,
        )
        self._client = ClaudeSDKClient(made)
        self._connected = False

    async def start(self, *made: Call) -> Seen:
        self._api.say(named(*made))
        if not self._connected:
            await self._client.connect()
            self._connected = True
        result = await run(self._client)
        return Seen({}, read(self._api), result.result)

    async def resume(self, answer: str = "go", only: Sequence[str] | None = None) -> Seen:
        raise AssertionError("it has no pause")

    def restarted(self) -> "ClaudeSession":
        raise AssertionError("it has no pause")

    async def close(self) -> None:
        await self._client.disconnect()
        self._api.__exit__()


class ClaudeAgentSDK:
    """The agent loop of the CLI, with tools in this process."""

    name = "claude_agent_sdk"
    prefix = "bank"
    modes: Sequence[Mode] = ("async",)
    holds: Sequence[OnHold] = ("notify_model", "wait", "raise")
    cannot: Mapping[str, str] = {
        "test_default_argument_is_asked_about": (
            "the check contains the model's arguments; the tool fills in its own defaults after the check"
        ),
        "test_pending_call_ends_the_run": (
            "the CLI ends the run without an exception, so a separate test covers `raise`"
        ),
    }
    # Each starts the CLI; of calls that wait in parallel one is declined, and each has its own fate.
    slow = ("test_waited_for_then_declined", "test_told_in_parallel")

    def session(
        self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "notify_model"
    ) -> ClaudeSession:
        return ClaudeSession(scene, folder, on_hold)


HARNESSES: list[Harness] = [ClaudeAgentSDK()]
