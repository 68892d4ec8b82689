"""Going on with a Haystack run that was stopped because calls wait for a person."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.hooks.human_in_the_loop import ToolExecutionDecision
from haystack.tools import flatten_tools_or_toolsets

from toolgate import ConfigurationError, GuardError
from toolgate_integrations._base import ToolCall
from toolgate_integrations._haystack_hooks import GuardHook
from toolgate_integrations._haystack_messages import HeldCall, Replaying, answered, held_calls, without

__all__ = ["resume", "resume_async"]

logger = logging.getLogger("toolgate")


def resume(
    agent: Agent,
    messages: Sequence[ChatMessage],
    decisions: Sequence[ToolExecutionDecision] = (),
    *,
    hook_context: Mapping[str, Any] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """Go on with a run that was stopped because calls wait: each is asked about again, and runs if it may.

    Args:
        agent: The agent, or one made like it.
        messages: The stopped run's `messages`.
        decisions: Calls that are not to run, whatever the gateway says: those with `execute=False`.
        hook_context: As for `Agent.run`; the run and the agent are those of the stopped run.
        **given: What else `Agent.run` takes, state above all.

    Returns:
        What `Agent.run` returns.

    Raises:
        ConfigurationError: The agent is not guarded, no call waits, or a decision is not one about these calls.
    """
    again = _Again(agent, messages, decisions, hook_context)
    for call, why, approval_id in again.rejected:
        with _logged(call):
            again.hook.bridge.reject(call, why, approval_id)
    return dict(again.agent.run(again.messages, hook_context=again.hook_context, **given))


async def resume_async(
    agent: Agent,
    messages: Sequence[ChatMessage],
    decisions: Sequence[ToolExecutionDecision] = (),
    *,
    hook_context: Mapping[str, Any] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """As `resume`, by `Agent.run_async`."""
    again = _Again(agent, messages, decisions, hook_context)
    for call, why, approval_id in again.rejected:
        with _logged(call):
            await again.hook.bridge.areject(call, why, approval_id)
    return dict(await again.agent.run_async(again.messages, hook_context=again.hook_context, **given))


class _Again:
    """What a stopped run is gone on with.

    The framework carries out no calls but those its model has just made. So the model's first word is the calls that
    wait, and they go the way of all others, hooks and all.
    """

    def __init__(
        self,
        agent: Agent,
        messages: Sequence[ChatMessage],
        decisions: Sequence[ToolExecutionDecision],
        hook_context: Mapping[str, Any] | None,
    ) -> None:
        self.hook = _hook_of(agent)
        held = held_calls(messages)
        if not held:
            raise ConfigurationError(
                "no call of these messages waits; pass what the stopped run returned as 'messages'"
            )
        noes = _noes(held, decisions)
        tools = {each.name: each for each in flatten_tools_or_toolsets(agent.tools)}
        self.rejected: list[tuple[ToolCall, str, str]] = []
        answers = {}
        for at, each in enumerate(held):
            if at in noes:
                asked = self.hook.asked(
                    each.tool_call, tools.get(each.tool_call.tool_name), each.run_id, each.agent
                )
                why = noes[at] or f"Not done: the call of {each.tool_call.tool_name!r} was rejected."
                self.rejected.append((asked, why, each.approval_id))
                answers[each.approval_id] = answered(each.tool_call, why)
        again = [each.tool_call for at, each in enumerate(held) if at not in noes]
        self.messages = without(messages, again, answers)
        # The prompts are among the messages already.
        changed: dict[str, Any] = {"system_prompt": None, "user_prompt": None, "required_variables": None}
        if again:
            changed["chat_generator"] = Replaying(agent.chat_generator, messages, again)
        self.agent = agent.clone(**changed)
        self.hook_context = {**(hook_context or {}), "run_id": held[-1].run_id, "agent": held[-1].agent}


def _hook_of(agent: Agent) -> GuardHook:
    for each in (getattr(agent, "hooks", None) or {}).get("before_tool", ()):
        if isinstance(each, GuardHook):
            return each
    raise ConfigurationError(
        f"agent is {agent!r}; pass a haystack Agent that was made with hooks=guard_hooks(…)"
    )


def _noes(held: Sequence[HeldCall], decisions: Sequence[ToolExecutionDecision]) -> dict[int, str | None]:
    """Which of the calls are rejected, and what was said.

    Raises:
        ConfigurationError: A decision is not one about these calls.
    """
    noes = {}
    for each in decisions:
        if not isinstance(each, ToolExecutionDecision):
            raise ConfigurationError(f"{each!r} is no decision; pass ToolExecutionDecision(…)")
        about = [
            at
            for at, one in enumerate(held)
            if (each.tool_name, each.tool_call_id or one.tool_call.id)
            == (one.tool_call.tool_name, one.tool_call.id)
        ]
        if len(about) != 1:
            raise ConfigurationError(
                f"the decision about {each.tool_name!r}, call {each.tool_call_id!r}, is about {len(about)} of the calls "
                "that wait; name one by its tool_call_id"
            )
        if not each.execute:
            noes[about[0]] = each.feedback
        elif each.final_tool_params not in (None, held[about[0]].tool_call.arguments):
            raise ConfigurationError(
                f"the decision about {each.tool_name!r} changes its arguments; change them where it is approved, at "
                "the gateway"
            )
    return noes


@contextmanager
def _logged(call: ToolCall) -> Iterator[None]:
    try:
        yield
    except GuardError as error:
        logger.warning("the rejection of a call of %r was not recorded: %s", call.name, error)
