"""A Haystack conversation with calls that wait: how it is written, read, and gone on with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from haystack.dataclasses import ChatMessage, ToolCall

from toolgate import ApprovalPending
from toolgate_integrations.refusals import refusal_text

__all__ = ["HeldCall", "Replaying", "answered", "divided", "held_calls", "waiting", "without"]

_KEY: Final = "toolgate"


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A call that waits for a person.

    Attributes:
        tool_call: The call, as the model made it.
        approval_id: The request it waits for.
        action: What was asked for.
        reason: Why it is held.
        run_id: The run it belongs to.
        agent: The agent that makes it.
    """

    tool_call: ToolCall = field(repr=False)
    approval_id: str
    action: str
    reason: str | None
    run_id: str | None = None
    agent: str | None = None


def waiting(
    tool_call: ToolCall, pending: ApprovalPending, run_id: str | None, agent: str | None
) -> ChatMessage:
    """What stands in the conversation for a call that waits; a model that is shown it reads so."""
    said = {
        "approval_id": pending.approval_id,
        "action": pending.action,
        "reason": pending.reason,
        "run_id": run_id,
        "agent": agent,
    }
    return answered(tool_call, refusal_text(pending), {_KEY: said})


def answered(tool_call: ToolCall, text: str, meta: dict[str, Any] | None = None) -> ChatMessage:
    """What the model reads of a call that did not run."""
    return ChatMessage.from_tool(text, origin=tool_call, error=True, meta=meta)


def held_calls(messages: Iterable[ChatMessage]) -> list[HeldCall]:
    """The calls of a conversation that wait for a person; empty if none does.

    Args:
        messages: What `Agent.run` returned as `messages`, or its copy from a store.
    """
    found = []
    for message in messages:
        said, result = message.meta.get(_KEY), message.tool_call_result
        if isinstance(said, dict) and result is not None:
            found.append(HeldCall(result.origin, **said))
    return found


def divided(
    message: ChatMessage, answers: Sequence[ChatMessage], calls: Sequence[ToolCall]
) -> list[ChatMessage]:
    """A message of calls in two: those that are answered, then those that the framework is to run."""
    refused = [each.origin for answer in answers for each in answer.tool_call_results]
    parts = [_with(message, refused), *answers] if refused else []
    return [*parts, _with(message, calls)] if calls else parts


def without(
    messages: Iterable[ChatMessage], gone: Sequence[ToolCall], answers: Mapping[str, ChatMessage]
) -> list[ChatMessage]:
    """A conversation before some of its calls were made.

    Args:
        messages: The conversation.
        gone: The calls.
        answers: What others that waited are answered with, by their requests.
    """
    kept: list[ChatMessage] = []
    left: list[ToolCall] = []
    # From the end: an equal call that was made and answered earlier stays.
    for message in reversed(list(messages)):
        if _KEY in message.meta:
            answer = answers.get(message.meta[_KEY]["approval_id"])
            if answer is not None:
                kept.append(answer)
            else:
                left += [each.origin for each in message.tool_call_results if each.origin in gone]
            continue
        calls = []
        for each in message.tool_calls:
            if each in left:
                left.remove(each)
            else:
                calls.append(each)
        if calls or not message.tool_calls:
            kept.append(message if len(calls) == len(message.tool_calls) else _with(message, calls))
    return kept[::-1]


class Replaying:
    """A chat generator that makes some calls once more, and is another one from then on."""

    def __init__(self, inner: Any, messages: Iterable[ChatMessage], calls: Sequence[ToolCall]) -> None:
        said = [each for each in messages if any(one in calls for one in each.tool_calls)]
        # Tokens that were counted before the pause are not used again.
        meta = {name: value for name, value in said[-1].meta.items() if name != "usage"}
        self._first: ChatMessage | None = _with(said[-1], calls, meta)
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def run(self, messages: list[ChatMessage], tools: Any = None, **given: Any) -> dict[str, Any]:
        """The calls, or what the other one says."""
        reply = self._replayed()
        return reply or dict(self._inner.run(messages=messages, tools=tools, **given))

    async def run_async(self, messages: list[ChatMessage], tools: Any = None, **given: Any) -> dict[str, Any]:
        """As `run`."""
        reply = self._replayed()
        return reply or dict(await _asynchronous(self._inner)(messages=messages, tools=tools, **given))

    def _replayed(self) -> dict[str, Any] | None:
        first, self._first = self._first, None
        return None if first is None else {"replies": [first]}


def _with(message: ChatMessage, calls: Sequence[ToolCall], meta: dict[str, Any] | None = None) -> ChatMessage:
    return ChatMessage.from_assistant(
        text=message.text,
        meta=dict(message.meta) if meta is None else meta,
        name=message.name,
        tool_calls=list(calls),
        reasoning=message.reasoning,
    )


def _asynchronous(generator: Any) -> Callable[..., Any]:
    if callable(getattr(generator, "run_async", None)):
        return generator.run_async  # type: ignore[no-any-return]  # of no declared type
    return partial(asyncio.to_thread, generator.run)
