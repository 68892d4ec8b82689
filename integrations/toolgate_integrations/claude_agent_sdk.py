"""Plugin for the Claude Agent SDK: `query(…, options=guard_options(…))` checks and logs every tool call of an agent."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from toolgate import ConfigurationError, Guard, GuardError
from toolgate_integrations._options import OnHoldWithoutPause
from toolgate_integrations.base import (
    Begun,
    Bridge,
    ToolActions,
    ToolCall,
    refusal_text,
    require,
)

require("claude_agent_sdk")

from claude_agent_sdk import (
    CanUseTool,
    ClaudeAgentOptions,
    HookCallback,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)
from claude_agent_sdk.types import SyncHookJSONOutput

__all__ = ["OnHoldWithoutPause", "guard_options"]

#: The input that the Claude Code CLI passes to a hook.
Told = Mapping[str, Any]
logger = logging.getLogger("toolgate")


class ToolFailed(Exception):
    """Error for the log entry of a tool that failed or did not run; it contains the CLI's message."""


class Gate:
    """Hooks of the Claude Code CLI that check every tool call before it runs, and log its outcome afterwards.

    Args:
        bridge: The bridge that checks and logs the calls.
    """

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        # True if checks contain the call id. The id is omitted if the model has to repeat a pending call, because the
        # repeated call has a new id, which the approval would not cover.
        self._names_calls = self._bridge.names_calls
        self._running: dict[tuple[str, str], tuple[Told, Begun]] = {}

    async def before(self, told: Any, *__: object) -> SyncHookJSONOutput:
        """Hook that the CLI calls before a tool runs: check the call, and deny it if it must not run.

        The model reads the reason of a denial. For an allowed call, the hook returns no permission decision, so that
        the CLI still applies the user's own permissions.
        """
        try:
            passed = await self._asked(told, named=self._names_calls)
        except self._bridge.fatal as error:
            # The CLI would ignore an exception and continue the run, so the hook returns a result that denies the
            # call and ends the run.
            why = refusal_text(error)
            denied = _said(permissionDecision="deny", permissionDecisionReason=why)
            return {**denied, "continue_": False, "stopReason": why}
        if isinstance(passed, str):
            return _said(permissionDecision="deny", permissionDecisionReason=passed)
        # No permission decision is returned, even if an approver edited the arguments, because "allow" would skip the
        # user's own permissions.
        return _said(updatedInput=passed.arguments) if _differing(passed, told["tool_input"]) else {}

    async def after(self, told: Any, *__: object) -> SyncHookJSONOutput:
        """Hook that the CLI calls after a tool has run: log the outcome of the call."""
        _, passed = self._running.pop(_key(told), (None, None))
        if passed is None:
            return {}
        why_not = told["error"] if told["hook_event_name"] == "PostToolUseFailure" else None
        if others := _differing(passed, told["tool_input"]):
            why_not = (
                f"the tool ran with arguments that differ from the checked arguments: {', '.join(others)}"
            )
            logger.error(
                "tool %r: %s; a hook of a settings file or plugin changed the arguments",
                told["tool_name"],
                why_not,
            )
        _log_outcome(passed, why_not)
        return {}

    async def after_all(self, told: Any, *__: object) -> SyncHookJSONOutput:
        """Hook that the CLI calls after all calls in a message: log those that the user's own permissions prevented."""
        for each in told["tool_calls"]:
            _, passed = self._running.pop((told["session_id"], each["tool_use_id"]), (None, None))
            if passed is not None:
                _log_outcome(passed, f"not run: {each.get('tool_response')}")
        return {}

    async def changed(
        self, answer: PermissionResultAllow, tool_use_id: str | None
    ) -> PermissionResultAllow | PermissionResultDeny:
        """Check a call again, because the user's own permission callback has changed its arguments.

        Args:
            answer: The callback's result, with the changed arguments.
            tool_use_id: Id of the call.
        """
        keys = [each for each in self._running if each[1] == tool_use_id]
        if len(keys) != 1:
            return PermissionResultDeny(
                message="Denied: the arguments were changed, and the changed call cannot be checked."
            )
        told, before = self._running.pop(keys[0])
        _log_outcome(
            before, "not run: can_use_tool changed the call's arguments; the changed call was checked instead"
        )
        # The call id is omitted from this check: an approval of the call with this id covers only the arguments before
        # the change, and may already be consumed.
        try:
            passed = await self._asked({**told, "tool_input": answer.updated_input}, named=False)
        except self._bridge.fatal as error:
            return PermissionResultDeny(message=refusal_text(error), interrupt=True)
        if isinstance(passed, str):
            return PermissionResultDeny(message=passed)
        return PermissionResultAllow(
            updated_input=passed.arguments, updated_permissions=answer.updated_permissions
        )

    async def _asked(self, told: Told, *, named: bool) -> Begun | str:
        """Check a call; return the allowed call, or the message for the model if the call must not run.

        Raises:
            ConfigurationError: The run must end, because a setting is missing or wrong, or the gateway rejects the
                API key.
            GatewayProtocolError: As for `ConfigurationError`.
        """
        try:
            passed = await self._bridge.abegin(_call(told, named=named))
        except self._bridge.fatal:
            raise
        except GuardError as refused:
            return refusal_text(refused)
        except Exception as error:
            # An exception would reach only the CLI, which does not show it to the program's user, so it is logged
            # here.
            logger.exception("a tool call was not checked, and does not run")
            return f"Not done: the guard failed with {type(error).__name__}."
        self._running[_key(told)] = told, passed
        return passed


def _log_outcome(passed: Begun, why_not: str | None) -> None:
    """Log the outcome of a call: success if `why_not` is None, else a failure with `why_not` as the message."""
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
    """Return the names of those arguments in `given` that differ from the approved arguments."""
    names = passed.arguments.keys() | given.keys()
    return sorted(each for each in names if _plain(passed.arguments, each) != _plain(given, each))


def _plain(arguments: Told, name: str) -> str:
    """Return an argument as JSON in a normalized form, in which equal values have equal texts.

    Whole floats are converted to integers, because the CLI is written in JavaScript and sends 40.0 as 40.
    """
    if name not in arguments:
        return ""
    return json.dumps(json.loads(json.dumps(arguments[name]), parse_float=_number), sort_keys=True)


def _number(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() else number


# Characters of server names that the CLI replaces by "_" in tool names.
_UNSEEN: Final = re.compile(r"[^a-zA-Z0-9_-]")


def guard_options(
    options: ClaudeAgentOptions | None = None,
    guard: Guard | None = None,
    *,
    tool_actions: ToolActions | None = None,
    agents: Mapping[str, str] | None = None,
    on_hold: OnHoldWithoutPause = "notify_model",
    hold_timeout: float | None = None,
) -> ClaudeAgentOptions:
    """Return options with which every tool call of an agent is checked before it runs, and logged afterwards.

    The options can be used for any number of `query` calls and `ClaudeSDKClient`s. A call that the gateway allows
    runs only if the user's own settings `allowed_tools`, `permission_mode` and `can_use_tool` permit it too.

    Args:
        options: The agent's options, including all its hooks; they are not changed. None for the SDK's defaults.
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        tool_actions: Actions by tool name, as a mapping or a function of the name. The default action is
            `tools.<name>`, or `<server>.<tool>` for a tool of an MCP server.
        agents: Toolgate agent ids by the types of sub-agents, which are the keys of `options.agents`. The main agent
            and all other sub-agents use the guard's agent id.
        on_hold: Reaction to a call that requires an approval. `wait`: wait for the approver within the run. `raise`:
            end the run with `ApprovalPending`. `notify_model`: the model reads that the call is pending.
        hold_timeout: Seconds to wait for the approver with `on_hold="wait"`; afterwards, the model reads that the call
            is pending. None for no limit.

    Raises:
        ConfigurationError: An argument is invalid, or `options` turns hooks off.
    """
    options = ClaudeAgentOptions() if options is None else options
    if not isinstance(options, ClaudeAgentOptions):
        raise ConfigurationError(
            f"options is a {type(options).__name__!r}; pass ClaudeAgentOptions, or None for the defaults"
        )
    gate = Gate(Bridge(guard, tool_actions, agents, on_hold, hold_timeout))
    given: dict[Any, list[HookMatcher]] = dict(options.hooks or {})
    if any(isinstance(getattr(hook, "__self__", None), Gate) for hook in _all_hooks(given)):
        raise ConfigurationError("the options are already guarded; guard them only once")
    hooks = {event: [_deny_changes(event, each) for each in matchers] for event, matchers in given.items()}
    asking = HookMatcher(hooks=[gate.before], timeout=_LONGEST, on_failure="block")
    hooks["PreToolUse"] = [asking, *hooks.get("PreToolUse", [])]
    for event in ("PostToolUse", "PostToolUseFailure"):
        hooks[event] = [HookMatcher(hooks=[gate.after]), *hooks.get(event, [])]
    hooks["PostToolBatch"] = [HookMatcher(hooks=[gate.after_all]), *hooks.get("PostToolBatch", [])]
    return replace(
        options,
        hooks=hooks,
        can_use_tool=None if options.can_use_tool is None else _check_changes(options.can_use_tool, gate),
        env={**_with_hooks(options), **_HOOKS_ON},
        settings=_settings(options),
    )


def _all_hooks(given: Mapping[Any, list[HookMatcher]]) -> list[HookCallback]:
    return [hook for matchers in given.values() for each in matchers for hook in each.hooks]


def _check_changes(can_use_tool: CanUseTool, gate: Gate) -> CanUseTool:
    """Wrap the user's own permission callback, and check a call again if the callback changes its arguments."""

    async def asked(
        name: str, arguments: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        # The arguments are copied before the callback is called, because it may change them in place, and the SDK would
        # then send the changed object.
        before = deepcopy(arguments)
        answer = await can_use_tool(name, arguments, context)
        if isinstance(answer, PermissionResultAllow):
            wanted = arguments if answer.updated_input is None else answer.updated_input
            if wanted != before:
                return await gate.changed(replace(answer, updated_input=wanted), context.tool_use_id)
        return answer

    return asked


def _deny_changes(event: str, matcher: HookMatcher) -> HookMatcher:
    """Return a copy of a hook matcher of the user, whose hooks deny a call instead of changing its arguments.

    The gateway has not checked the changed arguments.
    """
    if event not in _DENIALS:
        return matcher

    def held(hook: Any) -> Any:
        async def called(told: Any, tool_use_id: str | None, context: Any) -> Any:
            before = deepcopy(told["tool_input"])
            said = await hook(told, tool_use_id, context)
            decided = (said.get("hookSpecificOutput") or {}) if isinstance(said, Mapping) else {}
            changed = {**decided, **(decided.get("decision") or {})}.get("updatedInput")
            if changed in (None, before):
                return said
            return {"hookSpecificOutput": {"hookEventName": event, **_DENIALS[event]}}

        return called

    return replace(matcher, hooks=[held(each) for each in matcher.hooks])


def _with_hooks(options: ClaudeAgentOptions) -> dict[str, str]:
    """Return the environment variables for the CLI process, after a check that no option turns hooks off.

    Raises:
        ConfigurationError: `extra_args` contains a flag that could turn hooks off.
    """
    # Only the part of a key before "=" is compared. The SDK writes each key unchanged after two dashes, so the key
    # 'settings={…}' is the flag `--settings` with a value.
    flags = {each.partition("=")[0] for each in options.extra_args}
    if "bare" in flags:
        raise ConfigurationError("extra_args contains 'bare', which disables all hooks; remove it")
    if "settings" in flags:
        raise ConfigurationError(
            "extra_args contains 'settings', which can disable hooks; use options.settings instead"
        )
    return options.env


def _settings(options: ClaudeAgentOptions) -> str:
    """Return the CLI's settings as JSON, with the features disabled that would run commands without calling hooks.

    The CLI gives these settings precedence over the settings files of the user and the project.
    """
    text = (options.settings or "{}").strip()
    try:
        if not text.startswith("{"):
            text = (Path(options.cwd or "") / text).read_text(encoding="utf-8-sig")
        settings = json.loads(text)
        env = {**settings.get("env", {}), **_HOOKS_ON}
        # Shell commands in skills are disabled, because the CLI runs them without calling a hook.
        return json.dumps({"disableSkillShellExecution": True, **settings, "env": env})
    except (OSError, ValueError, TypeError, AttributeError) as error:
        # The error message contains neither the settings nor the parser's message, because settings may contain API
        # keys.
        why = (
            error.strerror
            if isinstance(error, OSError)
            else "the settings must be a JSON object, and their 'env' must be an object"
        )
        raise ConfigurationError(f"options.settings cannot be read: {why}") from None


# Maximum number of seconds for which a hook waits for an approver: 23 days, slightly less than the longest timer that
# JavaScript, the CLI's language, supports.
_LONGEST: Final = 2_000_000
# The CLI calls no hooks if CLAUDE_CODE_SIMPLE is 1. The process or a settings file may have set the variable, so it
# is overridden.
_HOOKS_ON: Final = {"CLAUDE_CODE_SIMPLE": "0"}
_CHANGED: Final = "Not done: another hook changed the call's arguments after the check."
_DENIALS: Final[Mapping[str, dict[str, Any]]] = {
    "PreToolUse": {"permissionDecision": "deny", "permissionDecisionReason": _CHANGED},
    "PermissionRequest": {"decision": {"behavior": "deny", "message": _CHANGED}},
}
