"""OpenCode's tools, as the guard's plugin for it tells of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toolgate import ConfigurationError
from toolgate_integrations._naming import ToolCall
from toolgate_integrations.hooks.events import After, Answer, Before, Event
from toolgate_integrations.hooks.reading import (
    as_json,
    duration_of,
    folder_beside,
    object_of,
    own_text,
    text_of,
)

__all__ = ["OpenCode"]


class OpenCode:
    """OpenCode.

    The plugin runs in OpenCode and asks by a process. It takes nothing for a yes but status 0 with `allowed` in JSON; so
    what is no answer needs no care here.
    """

    def read(self, told: Mapping[str, Any]) -> Event:
        """What it told.

        Raises:
            ConfigurationError: It is nothing that can be answered.
        """
        kind, call = text_of(told, "event"), _call(told)
        beside = folder_beside(call.arguments, own_text(told, "folder"))
        match kind:
            case "before":
                return Before(call, beside, _process(told))
            case "after":
                return After(call, beside, error=own_text(told, "error"), duration_ms=duration_of(told))
        raise ConfigurationError(
            f"the event {kind!r} is not known; see: toolgate hook install --for opencode"
        )

    def allowed(self, changed: Mapping[str, Any] | None) -> Answer:
        """Let the tool run, with other arguments if an approver changed them."""
        return Answer(
            0, as_json({"toolgate": "allowed", "arguments": None if changed is None else dict(changed)})
        )

    def refused(self, why: str) -> Answer:
        """Have the tool not run, and the model read why."""
        return Answer(2, as_json({"toolgate": "refused", "why": why}), why)


def _call(told: Mapping[str, Any]) -> ToolCall:
    name = text_of(told, "tool")
    server, own_name = _remote(name, told.get("servers")) or (None, None)
    return ToolCall(
        name,
        object_of(told, "arguments"),
        call_id=text_of(told, "call"),
        run_id=text_of(told, "session"),
        agent=own_text(told, "agent"),
        server=server,
        own_name=own_name,
    )


def _remote(name: str, servers: object) -> tuple[str, str] | None:
    """The server of a tool called `<server>_<tool>`, and its name there; None if it is no remote one."""
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


def _process(told: Mapping[str, Any]) -> int:
    found = told.get("process")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ConfigurationError("standard input has no 'process'; was it written by another program?")
    return found
