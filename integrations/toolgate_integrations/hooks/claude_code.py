"""Claude Code's hooks: PreToolUse, PostToolUse, PostToolUseFailure, SessionEnd."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from toolgate import ConfigurationError
from toolgate_integrations._naming import ToolCall
from toolgate_integrations.hooks.events import After, Answer, Before, Ended, Event
from toolgate_integrations.hooks.reading import (
    as_json,
    duration_of,
    folder_beside,
    object_of,
    own_text,
    text_of,
)

__all__ = ["ClaudeCode", "remote_tool"]

_MCP: Final = "mcp__"


class ClaudeCode:
    """Claude Code.

    A refusal is said three times: by the exit code, which alone counts, in JSON, which the model reads as it is, and on
    standard error for versions that look nowhere else. What is allowed is left to the user's own permissions: an `allow`
    would skip them.
    """

    def read(self, told: Mapping[str, Any]) -> Event:
        """What it told.

        Raises:
            ConfigurationError: It is nothing that can be answered.
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
        """Let the tool run, with other arguments if an approver changed them."""
        return Answer(0) if changed is None else Answer(0, _said(updatedInput=dict(changed)))

    def refused(self, why: str) -> Answer:
        """Have the tool not run, and the model read why."""
        return Answer(2, _said(permissionDecision="deny", permissionDecisionReason=why), why)


def remote_tool(name: str, server: str | None) -> tuple[str, str] | None:
    """The server of a tool called `mcp__<server>__<tool>`, and its name there; None if it is no remote one.

    Args:
        name: The tool's name.
        server: The server's name as it is configured, if that was told.

    Raises:
        ConfigurationError: It cannot be said where one name ends and the other begins.
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
    """Claude Code's own, which its variables tell."""
    said = os.environ.get("CLAUDE_PID", "")
    return int(said) if said.isascii() and said.isdigit() and 0 < len(said) < 10 else None  # noqa: PLR2004 - digits of a process id


def _said(**decision: Any) -> bytes:
    return as_json({"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}})
