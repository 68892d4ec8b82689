"""Claude Agent SDK: options under which every tool call of an agent is asked about and recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from toolgate import ConfigurationError, Guard
from toolgate_integrations._base import ToolActions, require

require("claude_agent_sdk")

# Below the check: without the framework, what is missing is said in one line.
from claude_agent_sdk import (
    CanUseTool,
    ClaudeAgentOptions,
    HookCallback,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)

from toolgate_integrations._claude_agent_calls import Gate, OnHold

__all__ = ["OnHold", "guard_options"]


def guard_options(
    options: ClaudeAgentOptions | None = None,
    *,
    guard: Guard | None = None,
    tool_actions: ToolActions | None = None,
    agents: Mapping[str, str] | None = None,
    on_hold: OnHold = "wait",
) -> ClaudeAgentOptions:
    """Options under which every call of a tool is asked about before it runs, and recorded after.

    For `query` and `ClaudeSDKClient`, any number of times. What the gateway allows still needs the permission that
    the options ask for: `allowed_tools`, `permission_mode`, `can_use_tool`.

    Args:
        options: The agent's, with all its hooks; they stay as they are. None is the defaults.
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names: a mapping, or a function of the name. Others are
            `tools.<name>`, or `<server>.<tool>` where an MCP server has the tool.
        agents: Agent ids by the types of sub-agents, the keys of `options.agents`; others act as the guard's own.
        on_hold: What a held call does: `wait` waits for the person, `tell` lets the model read that it waits.

    Raises:
        ConfigurationError: An argument is wrong, or the options turn hooks off.
    """
    options = ClaudeAgentOptions() if options is None else options
    if not isinstance(options, ClaudeAgentOptions):
        raise ConfigurationError(
            f"options is a {type(options).__name__!r}; pass ClaudeAgentOptions, or None for the defaults"
        )
    gate = Gate(guard, tool_actions, agents, on_hold)
    given: dict[Any, list[HookMatcher]] = dict(options.hooks or {})
    if any(isinstance(getattr(hook, "__self__", None), Gate) for hook in _all_hooks(given)):
        raise ConfigurationError("the options are guarded already; a call would be asked about twice")
    hooks = {event: [_held_to(event, each) for each in matchers] for event, matchers in given.items()}
    asking = HookMatcher(hooks=[gate.before], timeout=_LONGEST, on_failure="block")
    hooks["PreToolUse"] = [asking, *hooks.get("PreToolUse", [])]
    for event in ("PostToolUse", "PostToolUseFailure"):
        hooks[event] = [HookMatcher(hooks=[gate.after]), *hooks.get(event, [])]
    hooks["PostToolBatch"] = [HookMatcher(hooks=[gate.after_all]), *hooks.get("PostToolBatch", [])]
    return replace(
        options,
        hooks=hooks,
        can_use_tool=None if options.can_use_tool is None else _seen(options.can_use_tool, gate),
        env={**_with_hooks(options), **_HOOKS_ON},
        settings=_settings(options),
    )


def _all_hooks(given: Mapping[Any, list[HookMatcher]]) -> list[HookCallback]:
    return [hook for matchers in given.values() for each in matchers for hook in each.hooks]


def _seen(can_use_tool: CanUseTool, gate: Gate) -> CanUseTool:
    """The user's own permission; what it changes in a call is asked about too."""

    async def asked(
        name: str, arguments: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        # It may change them where they are, and the SDK sends on what it was handed.
        before = deepcopy(arguments)
        answer = await can_use_tool(name, arguments, context)
        if isinstance(answer, PermissionResultAllow):
            wanted = arguments if answer.updated_input is None else answer.updated_input
            if wanted != before:
                return await gate.changed(replace(answer, updated_input=wanted), context.tool_use_id)
        return answer

    return asked


def _held_to(event: str, matcher: HookMatcher) -> HookMatcher:
    """A hook of the user's own; one that changes the arguments of a call denies it: the gateway would not see them."""
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
    """The environment, where hooks are not turned off."""
    # The SDK writes them behind two dashes as they are: 'settings={…}' is a flag with its value.
    flags = {each.partition("=")[0] for each in options.extra_args}
    if "bare" in flags:
        raise ConfigurationError("extra_args has 'bare', with which no hook is called; take it out")
    if "settings" in flags:
        raise ConfigurationError("extra_args has 'settings', which may turn hooks off; use options.settings")
    return options.env


def _settings(options: ClaudeAgentOptions) -> str:
    """The settings, as text, with nothing that runs past the hooks: these count more than the user's and the project's."""
    text = (options.settings or "{}").strip()
    try:
        if not text.startswith("{"):
            text = (Path(options.cwd or "") / text).read_text(encoding="utf-8-sig")
        settings = json.loads(text)
        env = {**settings.get("env", {}), **_HOOKS_ON}
        # What stands in a skill as a command to be run is run without a hook.
        return json.dumps({"disableSkillShellExecution": True, **settings, "env": env})
    except (OSError, ValueError, TypeError, AttributeError) as error:
        # Neither what they say nor what does not fit in them is shown: keys may be among it.
        why = (
            error.strerror
            if isinstance(error, OSError)
            else "it is no JSON object with an object as its 'env'"
        )
        raise ConfigurationError(f"options.settings cannot be read: {why}") from None


# Seconds that a hook may wait for a person: 23 days, the most that a timer of the CLI can.
_LONGEST: Final = 2_000_000
# With it no hook is called at all, whatever its `on_failure`; the process or a settings file may have set it.
_HOOKS_ON: Final = {"CLAUDE_CODE_SIMPLE": "0"}
_CHANGED: Final = "Not done: another hook changed its arguments, and the gateway was not asked about those."
_DENIALS: Final[Mapping[str, dict[str, Any]]] = {
    "PreToolUse": {"permissionDecision": "deny", "permissionDecisionReason": _CHANGED},
    "PermissionRequest": {"decision": {"behavior": "deny", "message": _CHANGED}},
}
