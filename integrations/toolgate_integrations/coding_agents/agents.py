"""Input and output formats of the hooks of coding agents: Claude Code and OpenCode."""

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
    """Parse the JSON object that a coding agent passes to a hook as input.

    Raises:
        ConfigurationError: The input is not a JSON object.
    """
    try:
        found = json.loads(given)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"the hook's input is not JSON ({type(error).__name__})") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"the hook's input is not a JSON object but {type(found).__name__}")
    return found


def text_of(given: Mapping[str, Any], name: str) -> str:
    """Return the string in the required field `name` of a hook's input.

    Raises:
        ConfigurationError: The field is missing, is not a string, or is empty.
    """
    found = own_text(given, name)
    if found is None:
        raise ConfigurationError(
            f"the hook's input has no text {name!r}; run this command only as a hook of the coding agent"
        )
    return found


def own_text(given: Mapping[str, Any], name: str) -> str | None:
    """Return the string in the optional field `name` of a hook's input, or None if it is missing or invalid."""
    found = given.get(name)
    return found if isinstance(found, str) and found else None


def object_of(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object in the required field `name` of a hook's input.

    Raises:
        ConfigurationError: The field is missing, or is not an object.
    """
    found = given.get(name)
    if not isinstance(found, dict):
        raise ConfigurationError(
            f"the hook's input has no object {name!r}; run this command only as a hook of the coding agent"
        )
    return found


def duration_of(given: Mapping[str, Any]) -> float | None:
    """Return the tool's duration in milliseconds, or None if the hook's input does not contain it."""
    found = given.get("duration_ms")
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def folder_beside(arguments: Mapping[str, Any], folder: str | None) -> dict[str, str]:
    """Return the working folder of a shell command, as an additional value for the check of the call.

    Approvers need it: `rm -r build` alone does not show which folder it removes. The result is empty if the call has
    no command, or if its arguments already contain a folder.
    """
    return {"cwd": folder} if folder and "command" in arguments and "cwd" not in arguments else {}


def as_json(answer: Mapping[str, Any]) -> bytes:
    """Convert a hook's response to JSON in ASCII, so that the reader's text encoding does not matter."""
    return json.dumps(answer).encode("ascii")


@dataclass(frozen=True, slots=True)
class Before:
    """Event of a coding agent: a tool is about to run.

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
    """Event of a coding agent: a tool has run.

    Attributes:
        call: The call, with the arguments with which the tool ran.
        beside: As in `Before`, but with the values after the tool has run.
        error: Error message; None if the tool succeeded.
        duration_ms: Duration in milliseconds; None if the input does not contain it.
    """

    call: ToolCall
    beside: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """Event of a coding agent: a session has ended, so no further events for its calls follow.

    Attributes:
        session: Id of the session.
    """

    session: str


Event: TypeAlias = Before | After | Ended


@dataclass(frozen=True, slots=True)
class Answer:
    """Response of a hook: exit code and output of its process.

    Attributes:
        code: Exit code.
        stdout: Standard output.
        stderr: Standard error, which the user or the model reads.
    """

    code: int
    stdout: bytes = b""
    stderr: str = ""


class Agent(Protocol):
    """Interface of a coding agent: how its hooks receive input and return a decision."""

    def read(self, told: Mapping[str, Any]) -> Event:
        """Parse the hook's input.

        Raises:
            ConfigurationError: The input is not a valid event of the coding agent.
        """

    def allowed(self, changed: Mapping[str, Any] | None) -> Answer:
        """Return the response that allows the call, with the new arguments `changed` if an approver edited them."""

    def refused(self, why: str) -> Answer:
        """Return the response that denies the call; the model reads `why` as the reason."""


_MCP: Final = "mcp__"


class ClaudeCode:
    """Format of the hooks of Claude Code.

    A denial is returned in three ways: as the exit code, which alone prevents the call; as JSON, whose reason the
    model reads unchanged; and on standard error, for versions that read only that. The response to an allowed call
    contains no permission decision, because `allow` would skip the user's own permissions.
    """

    def read(self, told: Mapping[str, Any]) -> Event:
        """Parse the hook's input.

        Raises:
            ConfigurationError: The input is not a valid event of Claude Code.
        """
        kind = text_of(told, "hook_event_name")
        match kind:
            case "PreToolUse":
                return Before(_call(told), _beside(told), _process())
            case "PostToolUse":
                return After(_call(told), _beside(told), duration_ms=duration_of(told))
            case "PostToolUseFailure":
                why = own_text(told, "error") or "the tool failed without an error message"
                return After(_call(told), _beside(told), error=why, duration_ms=duration_of(told))
            case "SessionEnd":
                return Ended(text_of(told, "session_id"))
        raise ConfigurationError(
            f"the hook received the unknown event {kind!r}; install the hook again with: toolgate hook install"
        )

    def allowed(self, changed: Mapping[str, Any] | None) -> Answer:
        """Return the response that allows the call, with the new arguments `changed` if an approver edited them."""
        return Answer(0) if changed is None else Answer(0, _said(updatedInput=dict(changed)))

    def refused(self, why: str) -> Answer:
        """Return the response that denies the call; the model reads `why` as the reason."""
        return Answer(2, _said(permissionDecision="deny", permissionDecisionReason=why), why)


def remote_tool(name: str, server: str | None) -> tuple[str, str] | None:
    """Split a tool name `mcp__<server>__<tool>` into server name and original tool name; return None for a local tool.

    Args:
        name: The tool's name in Claude Code.
        server: The configured name of the server; None if the hook's input does not contain it.

    Raises:
        ConfigurationError: The name cannot be split unambiguously.
    """
    if not name.startswith(_MCP):
        return None
    rest = name.removeprefix(_MCP)
    if server is not None:
        own = rest.removeprefix(re.sub(r"[^A-Za-z0-9_-]", "_", server) + "__")
        if own and own != rest:
            return server, own
        raise ConfigurationError(f"the tool {name!r} does not begin with the name of its server {server!r}")
    first, _, own = rest.partition("__")
    if not first or not own or "__" in own:
        raise ConfigurationError(
            f"the server of the tool {name!r} is not clear from its name; set its action with --tool-action "
            "TOOL=ACTION"
        )
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
    """Return the id of Claude Code's process from the environment variable CLAUDE_PID, or None if it is not set."""
    said = os.environ.get("CLAUDE_PID", "")
    return int(said) if said.isascii() and said.isdigit() and 0 < len(said) < 10 else None  # noqa: PLR2004 - longest id


def _said(**decision: Any) -> bytes:
    return as_json({"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}})


class OpenCode:
    """Format of the hooks of OpenCode.

    The hook is started as a process by a plugin inside OpenCode. The plugin runs a tool only if the exit code is 0
    and the JSON output contains `allowed`, so a crash of the hook denies the call.
    """

    def read(self, told: Mapping[str, Any]) -> Event:
        """Parse the hook's input.

        Raises:
            ConfigurationError: The input is not a valid event of OpenCode.
        """
        kind, call = text_of(told, "event"), _opencode_call(told)
        beside = folder_beside(call.arguments, own_text(told, "folder"))
        match kind:
            case "before":
                return Before(call, beside, _opencode_process(told))
            case "after":
                return After(call, beside, error=own_text(told, "error"), duration_ms=duration_of(told))
        raise ConfigurationError(
            f"the plugin sent the unknown event {kind!r}; install the plugin again with: toolgate hook "
            "install --for opencode"
        )

    def allowed(self, changed: Mapping[str, Any] | None) -> Answer:
        """Return the response that allows the call, with the new arguments `changed` if an approver edited them."""
        return Answer(
            0, as_json({"toolgate": "allowed", "arguments": None if changed is None else dict(changed)})
        )

    def refused(self, why: str) -> Answer:
        """Return the response that denies the call; the model reads `why` as the reason."""
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
    """Split a tool name `<server>_<tool>` into server name and original tool name; return None for a local tool."""
    found = [
        (server, own)
        for server in (servers if isinstance(servers, list) else [])
        if isinstance(server, str) and (own := _after(name, re.sub(r"[^A-Za-z0-9_-]", "_", server) + "_"))
    ]
    if len(found) > 1:
        raise ConfigurationError(
            f"the server of the tool {name!r} is not clear from its name; set its action with --tool-action "
            "TOOL=ACTION"
        )
    return found[0] if found else None


def _after(name: str, start: str) -> str:
    return name.removeprefix(start) if name.startswith(start) else ""


def _opencode_process(told: Mapping[str, Any]) -> int:
    found = told.get("process")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ConfigurationError(
            "the hook's input has no 'process'; run this command only as a hook of the coding agent"
        )
    return found
