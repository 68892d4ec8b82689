"""Claude Code itself, asking by the hooks that `toolgate hook install` writes; its tools are an MCP server's."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.frameworks.claude_cli import ClaudeCLI, allowing
from support.frameworks.harness import Call, Harness, Mode, OnHold, Scene, Seen
from support.frameworks.messages_api import MessagesAPI
from support.frameworks.tool_server import ToolServer
from toolgate_cli.hooks.claude_code import add_hooks, command_hook
from toolgate_cli.hooks.commands import installed_command

SECONDS = 60


def settings(*words: str, limit: float = SECONDS) -> dict[str, Any]:
    """What is installed into empty settings."""
    return add_hooks({}, command_hook(installed_command(), words), limit)


def variables(scene: Scene) -> dict[str, str]:
    """What the hooks are given: the scene's guard, and its outbox."""
    own = scene.guard._guard_state.settings
    return {
        "TOOLGATE_URL": own.url,
        "TOOLGATE_API_KEY": own.api_key,
        "TOOLGATE_AGENT_ID": scene.agent_id,
        "TOOLGATE_TIMEOUT": str(own.timeout),
        "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
    }


class ClaudeCodeSession:
    """One conversation; each turn is a process."""

    def __init__(self, scene: Scene, folder: Path, on_hold: OnHold) -> None:
        self._api, self._tools = MessagesAPI().__enter__(), ToolServer(scene.tools).__enter__()
        words = ["--on-hold", on_hold, *(["--hold-timeout", str(SECONDS)] if on_hold == "wait" else [])]
        self._claude = ClaudeCLI(folder, self._api.url, settings(*words), variables(scene))

    async def start(self, *calls: Call) -> Seen:
        self._api.say([Call(f"mcp__bank__{each.tool}", each.arguments, each.id) for each in calls])
        servers = {"mcpServers": {"bank": {"type": "http", "url": self._tools.url}}}
        words = ["--mcp-config", json.dumps(servers), "--strict-mcp-config", *allowing("mcp__bank")]
        result = await asyncio.to_thread(self._claude.run, "go", *words)
        return Seen(
            {}, {call_id: told(read.text) for call_id, read in self._api.read.items()}, result["result"]
        )

    async def resume(self, answer: str = "go", only: Sequence[str] | None = None) -> Seen:
        raise AssertionError("it never pauses")

    def restarted(self) -> "ClaudeCodeSession":
        raise AssertionError("it never pauses")

    async def close(self) -> None:
        self._api.__exit__()
        self._tools.__exit__()


def told(text: str) -> str:
    """What the hook said, without the words that Claude Code puts before it."""
    return text.partition(" hook error: ")[2] or text


class ClaudeCode:
    """The program, by its command hooks."""

    name = "claude-code"
    prefix = "bank"
    modes: Sequence[Mode] = ("sync",)
    holds: Sequence[OnHold] = ("wait", "notify_model")
    cannot: Mapping[str, str] = {
        "test_default_argument_is_asked_about": (
            "the check contains the model's arguments; Claude Code validates them, "
            "and MCP servers fill in defaults, only after the hook"
        ),
        "test_arguments_changed_during_the_check_do_not_run": (
            "the arguments are in the memory of other processes, where the guard cannot detect changes"
        ),
        "test_wrapper_of_a_guarded_function_is_asked_about": (
            "tools run in other processes, where the suite cannot wrap a guarded function; "
            "the hook checks each call of a tool"
        ),
    }
    # Each starts the CLI; of calls that wait in parallel one is declined, and each has its own fate.
    slow = ("test_waited_for_then_declined", "test_told_in_parallel")

    def session(self, scene: Scene, mode: Mode, folder: Path, on_hold: OnHold = "wait") -> ClaudeCodeSession:
        return ClaudeCodeSession(scene, folder, on_hold)


HARNESSES: list[Harness] = [ClaudeCode()]
