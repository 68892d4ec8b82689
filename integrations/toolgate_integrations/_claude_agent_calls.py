"""The calls of Claude's agents, between the hook before a tool and those after it."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny
from claude_agent_sdk.types import SyncHookJSONOutput

from toolgate import Guard, GuardError
from toolgate_integrations._base import Begun, Bridge, ToolActions, ToolCall, valid_on_hold
from toolgate_integrations._setup_errors import SETUP_ERRORS
from toolgate_integrations.refusals import refusal_text

__all__ = ["Gate", "OnHold"]

OnHold = Literal["wait", "tell"]
#: What a hook is told, or says.
Told = Mapping[str, Any]
logger = logging.getLogger("toolgate")


class ToolFailed(Exception):
    """What the CLI says of a tool that failed, or was not run after all."""


class Gate:
    """The hooks that every call of a tool goes through.

    Args:
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names.
        agents: Agent ids by the types of sub-agents.
        on_hold: What a held call does.

    Raises:
        ConfigurationError: An argument is wrong.
    """

    def __init__(
        self,
        guard: Guard | None,
        tool_actions: ToolActions | None,
        agents: Mapping[str, str] | None,
        on_hold: OnHold,
    ) -> None:
        valid_on_hold(on_hold)
        self._bridge = Bridge(guard, tool_actions=tool_actions, agents=agents, on_hold=on_hold)
        # A model that was told asks again under another id: bound to this one, its approval would be of no use to it.
        self._names_calls = on_hold == "wait"
        self._running: dict[tuple[str, str], tuple[Told, Begun]] = {}

    async def before(self, told: Any, *__: object) -> SyncHookJSONOutput:
        """Ask about a call. No opinion lets it go on to the user's own permissions; the model reads a denial."""
        try:
            passed = await self._asked(told, named=self._names_calls)
        except SETUP_ERRORS as error:
            # Raised, it would be known to the CLI alone, which goes on: this denies the call and ends the run.
            why = refusal_text(error)
            denied = _said(permissionDecision="deny", permissionDecisionReason=why)
            return {**denied, "continue_": False, "stopReason": why}
        if isinstance(passed, str):
            return _said(permissionDecision="deny", permissionDecisionReason=passed)
        # Without a word on permission, also then: "allow" would pass by the user's own.
        return _said(updatedInput=passed.arguments) if _differing(passed, told["tool_input"]) else {}

    async def after(self, told: Any, *__: object) -> SyncHookJSONOutput:
        """Record what came of a call that ran."""
        _, passed = self._running.pop(_key(told), (None, None))
        if passed is None:
            return {}
        why_not = told["error"] if told["hook_event_name"] == "PostToolUseFailure" else None
        if others := _differing(passed, told["tool_input"]):
            why_not = f"ran with other arguments than the gateway was asked about: {', '.join(others)}"
            logger.error(
                "%r %s; a hook of a settings file or plugin changed them", told["tool_name"], why_not
            )
        _ended(passed, why_not)
        return {}

    async def after_all(self, told: Any, *__: object) -> SyncHookJSONOutput:
        """Record those calls of a turn that the user's own permissions kept from running."""
        for each in told["tool_calls"]:
            _, passed = self._running.pop((told["session_id"], each["tool_use_id"]), (None, None))
            if passed is not None:
                _ended(passed, f"not run: {each.get('tool_response')}")
        return {}

    async def changed(
        self, answer: PermissionResultAllow, tool_use_id: str | None
    ) -> PermissionResultAllow | PermissionResultDeny:
        """Ask about a call anew whose arguments the user's own permissions changed."""
        keys = [each for each in self._running if each[1] == tool_use_id]
        if len(keys) != 1:
            return PermissionResultDeny(
                message="Not done: its arguments were changed, and nobody can be asked."
            )
        told, before = self._running.pop(keys[0])
        _ended(before, "not run: can_use_tool changed its arguments; they were asked about anew")
        # Not by its name: that stands for the call as it was, and may have been used up.
        try:
            passed = await self._asked({**told, "tool_input": answer.updated_input}, named=False)
        except SETUP_ERRORS as error:
            return PermissionResultDeny(message=refusal_text(error), interrupt=True)
        if isinstance(passed, str):
            return PermissionResultDeny(message=passed)
        return PermissionResultAllow(
            updated_input=passed.arguments, updated_permissions=answer.updated_permissions
        )

    async def _asked(self, told: Told, *, named: bool) -> Begun | str:
        """The call, which may run now; or why it may not.

        Raises:
            ConfigurationError: The run is to end: a setting is missing or wrong, or the API key is refused.
            GatewayProtocolError: As for `ConfigurationError`.
        """
        try:
            passed = await self._bridge.abegin(_call(told, named=named))
        except SETUP_ERRORS:
            raise
        except GuardError as refused:
            return refusal_text(refused)
        except Exception as error:
            # Raised, it would be known to nobody but the CLI.
            logger.exception("a call of a tool was not asked about, and is not done")
            return f"Not done: the guard failed with {type(error).__name__}."
        self._running[_key(told)] = told, passed
        return passed


def _ended(passed: Begun, why_not: str | None) -> None:
    """Record what came of a call."""
    if why_not is None:
        passed.run(lambda: None)
    else:
        passed.not_run(ToolFailed(why_not))


def _key(told: Told) -> tuple[str, str]:
    return told["session_id"], told["tool_use_id"]


def _call(told: Told, *, named: bool) -> ToolCall:
    name, own_name = told["tool_name"], None
    server = (told.get("mcp_server") or {}).get("name")
    if server is not None:
        own_name = name.removeprefix(f"mcp__{_UNSEEN.sub('_', server)}__")
    elif name.startswith("mcp__"):
        _, server, own_name = name.split("__", 2)
    return ToolCall(
        name,
        told["tool_input"],
        call_id=told["tool_use_id"] if named else None,
        run_id=told["session_id"],
        agent=told.get("agent_type"),
        server=server,
        own_name=own_name,
    )


def _said(**decision: Any) -> SyncHookJSONOutput:
    said: Any = {"hookEventName": "PreToolUse", **decision}
    return {"hookSpecificOutput": said}


def _differing(passed: Begun, given: Told) -> list[str]:
    """The names of arguments that are others than those the call passed with."""
    names = passed.arguments.keys() | given.keys()
    return sorted(each for each in names if _plain(passed.arguments, each) != _plain(given, each))


def _plain(arguments: Told, name: str) -> str:
    """An argument as it is after a way through JavaScript, where 40.0 is 40; equal is what reads the same."""
    if name not in arguments:
        return ""
    return json.dumps(json.loads(json.dumps(arguments[name]), parse_float=_number), sort_keys=True)


def _number(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() else number


# What the CLI replaces in the names of servers.
_UNSEEN: Final = re.compile(r"[^a-zA-Z0-9_-]")
