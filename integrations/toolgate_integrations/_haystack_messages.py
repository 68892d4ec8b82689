"""What stands in a Haystack conversation for calls that wait, and the conversation before they were made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from haystack.dataclasses import ChatMessage, ToolCall

from toolgate import ApprovalPending
from toolgate_integrations._made import Made
from toolgate_integrations._telling import shown

__all__ = ["HeldCall", "answered", "divided", "held_calls", "making", "waiting", "without"]

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


def held_calls(messages: Iterable[ChatMessage]) -> list[HeldCall]:
    """The calls of a conversation that wait for a person; empty if none does.

    Args:
        messages: What `Agent.run` returned as `messages`, or its copy from a store.
    """
    return [held for each in messages if (held := _held(each)) is not None]


def _held(message: ChatMessage) -> HeldCall | None:
    said, result = message.meta.get(_KEY), message.tool_call_result
    return HeldCall(result.origin, **said) if isinstance(said, dict) and result is not None else None


def waiting(made: Made, pending: ApprovalPending) -> ChatMessage:
    """What stands in the conversation for a call that waits; a model that is shown it reads so."""
    said = {**shown(pending), "run_id": made.asked.run_id, "agent": made.asked.agent}
    return answered(made.own, made.told, {_KEY: said})


def answered(tool_call: ToolCall, text: str, meta: dict[str, Any] | None = None) -> ChatMessage:
    """What the model reads of a call that did not run."""
    return ChatMessage.from_tool(text, origin=tool_call, error=True, meta=meta)


def divided(message: ChatMessage, answers: list[ChatMessage], calls: list[ToolCall]) -> list[ChatMessage]:
    """A message of calls in two: those that are answered, then those that the framework is to run."""
    refused = [each.origin for answer in answers for each in answer.tool_call_results]
    parts = [making(message, refused), *answers] if refused else []
    return [*parts, making(message, calls)] if calls else parts


def without(messages: Sequence[ChatMessage], noes: Mapping[str, str]) -> list[ChatMessage]:
    """A conversation before its calls that wait were made.

    Args:
        messages: The conversation.
        noes: What those of them that are not to run are answered with, by their requests.
    """
    kept: list[ChatMessage] = []
    gone: list[ToolCall] = []
    # From the end: an equal call that was made and answered earlier stays.
    for message in reversed(messages):
        held = _held(message)
        if held is None:
            calls = [each for each in message.tool_calls if not _taken(each, gone)]
            if calls or not message.tool_calls:
                kept.append(making(message, calls) if calls != message.tool_calls else message)
        elif held.approval_id in noes:
            kept.append(answered(held.tool_call, noes[held.approval_id]))
        else:
            gone.append(held.tool_call)
    return kept[::-1]


def _taken(call: ToolCall, gone: list[ToolCall]) -> bool:
    if call in gone:
        gone.remove(call)
        return True
    return False


def making(message: ChatMessage, calls: Iterable[ToolCall]) -> ChatMessage:
    """The same message with other calls."""
    said, meta = message.text, dict(message.meta)
    return ChatMessage.from_assistant(said, meta, message.name, list(calls), reasoning=message.reasoning)
