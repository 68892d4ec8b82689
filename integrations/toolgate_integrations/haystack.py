"""Haystack: `Agent(…, hooks=guard_hooks())`, and `resume(agent, messages)` after a pause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolgate import ConfigurationError, Guard
from toolgate_integrations._base import ToolActions, require

require("haystack")

from haystack.hooks import Hook, HookPoint

from toolgate_integrations._haystack_hooks import STOPPED, GuardHook, OnHold, RecordHook
from toolgate_integrations._haystack_messages import HeldCall, held_calls
from toolgate_integrations._haystack_resume import resume, resume_async

__all__ = [
    "STOPPED",
    "GuardHook",
    "HeldCall",
    "RecordHook",
    "guard_hooks",
    "held_calls",
    "resume",
    "resume_async",
]


def guard_hooks(
    guard: Guard | None = None,
    *,
    tool_actions: ToolActions | None = None,
    agents: Mapping[str, str] | None = None,
    agent: str | None = None,
    on_hold: OnHold = "stop",
    beside: Mapping[HookPoint, Sequence[Hook]] | None = None,
) -> dict[HookPoint, list[Hook]]:
    """The hooks of an agent whose every tool call is asked for.

    Args:
        guard: The guard that asks; None is the environment's.
        tool_actions: Actions of tools by their names: a mapping, or a function of the name. Others are
            `tools.<name>`.
        agents: Agent ids by the names of agents; others act as the guard's own agent.
        agent: The name of the agent that has these hooks, where `hook_context` names none.
        on_hold: What a held call does: `stop` stops the run, `wait` waits for the person within it, `tell` lets the
            model read that it waits.
        beside: The agent's other hooks.

    Returns:
        All hooks, the guard's nearest to the tools.

    Raises:
        ConfigurationError: An argument is wrong.
    """
    if beside is not None and not isinstance(beside, Mapping):
        raise ConfigurationError(f"beside is {beside!r}; pass a mapping of hook points to lists of hooks")
    asks = GuardHook(guard, tool_actions=tool_actions, agents=agents, agent=agent, on_hold=on_hold)
    hooks = {point: list(each) for point, each in (beside or {}).items()}
    hooks["before_tool"] = [*hooks.get("before_tool", ()), asks]
    hooks["after_tool"] = [RecordHook(), *hooks.get("after_tool", ())]
    return hooks
