"""Coding agents with hooks: Claude Code and OpenCode. Each class reads events and writes responses."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from toolgate import ConfigurationError
from toolgate_integrations.base import ToolCall

__all__ = ["OpenCode"]


def told(given: bytes) -> dict[str, Any]:
    """Parse the JSON object that a hook receives as its input.

    Raises:
        ConfigurationError: The input is not a JSON object.
    """
    try:
        found = json.loads(given)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"the hook's input is no JSON ({type(error).__name__})") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"the hook's input is no JSON object, but {type(found).__name__}")
    return found


def text_of(given: Mapping[str, Any], name: str) -> str:
    """Return the required text `name` of a hook's input.

    Raises:
        ConfigurationError: The input contains no such text, or an empty one.
    """
    found = own_text(given, name)
    if found is None:
        raise ConfigurationError(f"the hook's input has no {name!r}; was it written by another program?")
    return found


def own_text(given: Mapping[str, Any], name: str) -> str | None:
    """Return the optional text `name` of a hook's input; None if it is missing, empty or not a string."""
    found = given.get(name)
    return found if isinstance(found, str) and found else None


def object_of(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the required object `name` of a hook's input.

    Raises:
        ConfigurationError: The input contains no such object.
    """
    found = given.get(name)
    if not isinstance(found, dict):
        raise ConfigurationError(
            f"the hook's input has no object {name!r}; was it written by another program?"
        )
    return found


def duration_of(given: Mapping[str, Any]) -> float | None:
    """Return the tool's duration in milliseconds, or None."""
    found = given.get("duration_ms")
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def folder_beside(arguments: Mapping[str, Any], folder: str | None) -> dict[str, str]:
    """Return the working folder of a command, for approvers: `rm -r build` alone does not show which folder it removes.

    The result is empty if the arguments contain no command, or a folder of their own.
    """
    return {"cwd": folder} if folder and "command" in arguments and "cwd" not in arguments else {}


def as_json(answer: Mapping[str, Any]) -> bytes:
    """Return a hook's response as JSON in ASCII, which is valid in every terminal encoding."""
    return json.dumps(answer).encode("ascii")


@dataclass(frozen=True, slots=True)
class Before:
    """A tool is about to run.

    Attributes:
        call: The call, with the model's arguments.
        beside: Values that the check contains in addition to the arguments, and that an approver cannot change.
        process: Id of the coding agent's process; None if the input does not contain it.
    """

    call: ToolCall
    beside: Mapping[str, str] = field(default_factory=dict)
    process: int | None = None


@dataclass(frozen=True, slots=True)
class After:
    """A tool has run.

    Attributes:
        call: The call, with the arguments that the tool ran with.
        beside: As in `Before`, but with the values after the run.
        error: Error message; None if the tool succeeded.
        duration_ms: Duration in milliseconds; None if the input does not contain it.
    """

    call: ToolCall
    beside: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A session has ended; no further events of its calls follow.

    Attributes:
        session: Id of the session.
    """

    session: str


Event: TypeAlias = Before | After | Ended


@dataclass(frozen=True, slots=True)
class Answer:
    """Exit code and output of the hook's process.

    Attributes:
        code: Exit code.
        stdout: Standard output.
        stderr: Standard error, which the user or the model reads.
    """

    code: int
    stdout: bytes = b""
    stderr: str = ""


class Agent(Protocol):
    """Input and output format of a coding agent's hooks."""

    def read(self, told: Mapping[str, Any]) -> Event:
        """Parse the hook's input.

        Raises:
            ConfigurationError: The input is not a valid event of this coding agent.
        """

    def allowed(self, changed: Mapping[str, Any] | None) -> Answer:
        """Return the response that allows the call, with the arguments if an approver changed them."""

    def refused(self, why: str) -> Answer:
        """Return the response that denies the call; `why` is shown to the model."""


_MCP: Final = "mcp__"


class ClaudeCode:
    """Claude Code.

    A denial is returned in three ways: as the exit code, which alone is decisive; as JSON, whose reason the model reads
    unchanged; and on standard error, for versions that read only that. The response to an allowed call contains no
    permission decision, because `allow` would skip the user's own permissions.
    """

    def read(self, told: Mapping[str, Any]) -> Event:
        """Parse the hook's input.

        Raises:
            ConfigurationError: The input is not a valid event of this coding agent.
        """
        kind = text_of(told, "hook_event_name")
        match kind:
            case "PreToolUse":
                return Before(_call(told), _beside(told), _process())
            case "PostToolUse":
                return After(_call(told), _beside(told), duration_ms=duration_of(told))
            case "PostToolUseFailure":
                why = own_text(told, "error") or "it failed, and nothing was said of why"
                return After(_call(told), _beside(told), error=why, duration_ms=duration_of(told))
            case "SessionEnd":
                return Ended(text_of(told, "session_id"))
        raise ConfigurationError(
            f"the hook event {kind!r} is not known; see: toolgate hook install claude-code"
        )

    def allowed(self, changed: Mapping[str, Any] | None) -> Answer:
        """Return the response that allows the call, with the arguments if an approver changed them."""
        return Answer(0) if changed is None else Answer(0, _said(updatedInput=dict(changed)))

    def refused(self, why: str) -> Answer:
        """Return the response that denies the call; `why` is shown to the model."""
        return Answer(2, _said(permissionDecision="deny", permissionDecisionReason=why), why)


def remote_tool(name: str, server: str | None) -> tuple[str, str] | None:
    """Return the server of a tool called `mcp__<server>__<tool>` and its name there, or None for a local tool.

    Args:
        name: The tool's name.
        server: The configured name of the server; None if the input does not contain it.

    Raises:
        ConfigurationError: The name cannot be split unambiguously into the server's and the tool's name.
    """
    if not name.startswith(_MCP):
        return None
    rest = name.removeprefix(_MCP)
    if server is not None:
        own = rest.removeprefix(re.sub(r"[^A-Za-z0-9_-]", "_", server) + "__")
        if own and own != rest:
            return server, own
        raise ConfigurationError(f"the tool {name!r} is not named as one of the server {server!r}")
    first, _, own = rest.partition("__")
    if not first or not own or "__" in own:
        raise ConfigurationError(f"it cannot be said which server has the tool {name!r}; use --tool-action")
    return first, own


def _call(told: Mapping[str, Any]) -> ToolCall:
    name = text_of(told, "tool_name")
    about = told.get("mcp_server")
    remote = remote_tool(name, own_text(about, "name") if isinstance(about, Mapping) else None)
    server, own_name = remote or (None, None)
    return ToolCall(
        name,
        object_of(told, "tool_input"),
        call_id=text_of(told, "tool_use_id"),
        run_id=text_of(told, "session_id"),
        agent=own_text(told, "agent_type"),
        server=server,
        own_name=own_name,
    )


def _beside(told: Mapping[str, Any]) -> dict[str, str]:
    if text_of(told, "tool_name").startswith(_MCP):
        return {}
    return folder_beside(object_of(told, "tool_input"), own_text(told, "cwd"))


def _process() -> int | None:
    """Return the id of Claude Code's process, from its environment variable, or None."""
    said = os.environ.get("CLAUDE_PID", "")
    return int(said) if said.isascii() and said.isdigit() and 0 < len(said) < 10 else None  # noqa: PLR2004 - longest id


def _said(**decision: Any) -> bytes:
    return as_json({"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}})


class OpenCode:
    """OpenCode.

    A plugin that runs in OpenCode starts the hook as a process. The plugin runs a tool only after exit code 0 with
    `allowed` in JSON, so a crash of the hook denies the call.
    """

    def read(self, told: Mapping[str, Any]) -> Event:
        """Parse the hook's input.

        Raises:
            ConfigurationError: The input is not a valid event of this coding agent.
        """
        kind, call = text_of(told, "event"), _opencode_call(told)
        beside = folder_beside(call.arguments, own_text(told, "folder"))
        match kind:
            case "before":
                return Before(call, beside, _opencode_process(told))
            case "after":
                return After(call, beside, error=own_text(told, "error"), duration_ms=duration_of(told))
        raise ConfigurationError(
            f"the event {kind!r} is not known; see: toolgate hook install --for opencode"
        )

    def allowed(self, changed: Mapping[str, Any] | None) -> Answer:
        """Return the response that allows the call, with the arguments if an approver changed them."""
        return Answer(
            0, as_json({"toolgate": "allowed", "arguments": None if changed is None else dict(changed)})
        )

    def refused(self, why: str) -> Answer:
        """Return the response that denies the call; `why` is shown to the model."""
        return Answer(2, as_json({"toolgate": "refused", "why": why}), why)


def _opencode_call(told: Mapping[str, Any]) -> ToolCall:
    name = text_of(told, "tool")
    server, own_name = _opencode_remote(name, told.get("servers")) or (None, None)
    return ToolCall(
        name,
        object_of(told, "arguments"),
        call_id=text_of(told, "call"),
        run_id=text_of(told, "session"),
        agent=own_text(told, "agent"),
        server=server,
        own_name=own_name,
    )


def _opencode_remote(name: str, servers: object) -> tuple[str, str] | None:
    """Return the server of a tool called `<server>_<tool>` and its name there, or None for a local tool."""
    found = [
        (server, own)
        for server in (servers if isinstance(servers, list) else [])
        if isinstance(server, str) and (own := _after(name, re.sub(r"[^A-Za-z0-9_-]", "_", server) + "_"))
    ]
    if len(found) > 1:
        raise ConfigurationError(f"it cannot be said which server has the tool {name!r}; use --tool-action")
    return found[0] if found else None


def _after(name: str, start: str) -> str:
    return name.removeprefix(start) if name.startswith(start) else ""


def _opencode_process(told: Mapping[str, Any]) -> int:
    found = told.get("process")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ConfigurationError("standard input has no 'process'; was it written by another program?")
    return found
