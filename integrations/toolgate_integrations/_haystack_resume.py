"""Going on with a Haystack run that was stopped because calls wait for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks.human_in_the_loop import ToolExecutionDecision

from toolgate import ConfigurationError
from toolgate_integrations._haystack_hooks import GuardHook
from toolgate_integrations._haystack_messages import HeldCall, held_calls, making, without
from toolgate_integrations._telling import areject, reject

__all__ = ["resume", "resume_async"]

Decisions: TypeAlias = Sequence[ToolExecutionDecision]


def resume(
    agent: Agent, messages: Sequence[ChatMessage], decisions: Decisions = (), **given: Any
) -> dict[str, Any]:
    """Go on with a run that was stopped because calls wait: each is asked about again, and runs if it may.

    Args:
        agent: The agent, or one made like it.
        messages: The stopped run's `messages`.
        decisions: Calls that are not to run, whatever the gateway says: those with `execute=False`.
        **given: What else `Agent.run` takes, state above all. In `hook_context` the run and the agent are those of the
            stopped run.

    Returns:
        What `Agent.run` returns.

    Raises:
        ConfigurationError: The agent is not guarded, no call waits, or a decision is not one about these calls.
    """
    again = _Again(agent, messages, decisions, given)
    for no in again.rejected:
        reject(again.bridge, *no)
    return dict(again.agent.run(**again.given))


async def resume_async(
    agent: Agent, messages: Sequence[ChatMessage], decisions: Decisions = (), **given: Any
) -> dict[str, Any]:
    """As `resume`, by `Agent.run_async`."""
    again = _Again(agent, messages, decisions, given)
    for no in again.rejected:
        await areject(again.bridge, *no)
    return dict(await again.agent.run_async(**again.given))


class _Again:
    """What a stopped run is gone on with.

    The framework carries out no calls but those its model has just made. So the model's first word is the calls that
    wait, and they go the way of all others, hooks and all.
    """

    def __init__(
        self, agent: Agent, messages: Sequence[ChatMessage], decisions: Decisions, given: Mapping[str, Any]
    ) -> None:
        hook, held = _hook_of(agent), held_calls(messages)
        if not held:
            raise ConfigurationError("no call of these messages waits; pass all messages of a stopped run")
        noes = _noes(held, decisions)
        again = [each.tool_call for each in held if each.approval_id not in noes]
        self.bridge = hook.gate.bridge
        self.rejected: list[Any] = []
        for each in held:
            if each.approval_id in noes:
                call = hook.asked(each.tool_call, agent.tools, run_id=each.run_id, agent=each.agent)
                self.rejected.append((call, noes[each.approval_id], each.approval_id))
        # The prompts are among the messages already.
        changed: dict[str, Any] = {"system_prompt": None, "user_prompt": None, "required_variables": None}
        if again:
            changed["chat_generator"] = _Replaying(agent.chat_generator, messages, again)
        self.agent = agent.clone(**changed)
        context = {**(given.get("hook_context") or {}), "run_id": held[-1].run_id, "agent": held[-1].agent}
        self.given = {**given, "messages": without(messages, noes), "hook_context": context}


class _Replaying:
    """A chat generator that makes some calls once more, and is another one from then on."""

    def __init__(self, inner: Any, messages: Iterable[ChatMessage], calls: Sequence[ToolCall]) -> None:
        said = [each for each in messages if any(one in calls for one in each.tool_calls)][-1]
        self._inner, self._replies = inner, [making(said, calls)]
        # Tokens that were counted before the pause are not used again.
        self._replies[0].meta.pop("usage", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def run(self, messages: list[ChatMessage], tools: Any = None, **given: Any) -> dict[str, Any]:
        """The calls, or what the other one says."""
        if self._replies:
            return {"replies": [self._replies.pop()]}
        return dict(self._inner.run(messages=messages, tools=tools, **given))

    async def run_async(self, messages: list[ChatMessage], tools: Any = None, **given: Any) -> dict[str, Any]:
        """As `run`."""
        if self._replies or not hasattr(self._inner, "run_async"):
            return await asyncio.to_thread(self.run, messages, tools, **given)
        return dict(await self._inner.run_async(messages=messages, tools=tools, **given))


def _hook_of(agent: Agent) -> GuardHook:
    for each in (getattr(agent, "hooks", None) or {}).get("before_tool", ()):
        if isinstance(each, GuardHook):
            return each
    raise ConfigurationError(f"agent is {agent!r}; pass a haystack Agent made with hooks=guard_hooks(…)")


def _noes(held: Sequence[HeldCall], decisions: Decisions) -> dict[str, str]:
    """What the calls that are rejected are answered with, by their requests.

    Raises:
        ConfigurationError: A decision is not one about these calls.
    """
    noes = {}
    for each in decisions:
        if not isinstance(each, ToolExecutionDecision):
            raise ConfigurationError(f"{each!r} is no decision; pass ToolExecutionDecision(…)")
        name = each.tool_name
        named = [one for one in held if one.tool_call.tool_name == name]
        about = [one for one in named if not each.tool_call_id or each.tool_call_id == one.tool_call.id]
        if len(about) != 1:
            raise ConfigurationError(
                f"the decision about {name!r}, call {each.tool_call_id!r}, is about {len(about)} of the calls that wait; "
                "name one by its tool_call_id"
            )
        if not each.execute:
            noes[about[0].approval_id] = each.feedback or f"Not done: the call of {name!r} was rejected."
        elif each.final_tool_params not in (None, about[0].tool_call.arguments):
            raise ConfigurationError(
                f"the decision about {name!r} changes its arguments; change them where it is approved, at the gateway"
            )
    return noes
