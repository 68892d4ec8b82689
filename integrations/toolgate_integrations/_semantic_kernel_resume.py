"""A run of Semantic Kernel that ended for a person, gone on with from its chat history."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from semantic_kernel import Kernel
from semantic_kernel.contents import (
    ChatHistory,
    ChatMessageContent,
    FunctionCallContent,
    FunctionResultContent,
)
from semantic_kernel.functions import KernelArguments

from toolgate import ConfigurationError
from toolgate_integrations._rejecting import noes_of
from toolgate_integrations._semantic_kernel_filters import REJECTING, WAITING, Rejection, guard_of

__all__ = ["resume", "waiting"]


def waiting(chat_history: ChatHistory) -> dict[str, str]:
    """The calls in a history that wait for a person.

    Args:
        chat_history: The history.

    Returns:
        The approvals they wait for, by the ids of the calls; empty if the run has not ended for a person.
    """
    return {str(item.id): item.metadata[WAITING]["approval_id"] for _, _, item in _held(chat_history)}


async def resume(
    kernel: Kernel,
    chat_history: ChatHistory,
    *,
    arguments: KernelArguments | None = None,
    rejected: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Carry out the calls again that a run ended for, each if the gateway says so now.

    What comes of a call is written into the history in place of what it was told before: go on with an agent's
    `get_response(thread=ChatHistoryAgentThread(chat_history=…))`, and keep the history.

    Args:
        kernel: The kernel, guarded.
        chat_history: The history of the run, with all its messages; it is changed.
        arguments: The kernel's arguments that the run had.
        rejected: Reasons by the ids of calls that are not to be carried out, whatever the gateway says: their
            requests are withdrawn.

    Returns:
        The approvals that calls still wait for, by the ids of the calls; empty if the run can go on.

    Raises:
        ConfigurationError: The kernel is not guarded, or the history does not fit.
    """
    if guard_of(kernel) is None:
        raise ConfigurationError("the kernel is not guarded; call guard_kernel(kernel) first")
    held = list(_held(chat_history))
    noes = noes_of(rejected, [str(item.id) for _, _, item in held])
    calls = {
        item.id: item
        for message in chat_history.messages
        for item in message.items
        if isinstance(item, FunctionCallContent)
    }
    # Before any is carried out: what is under way beside it would go on, and its result be lost.
    if lost := [item.id for _, _, item in held if item.id not in calls]:
        raise ConfigurationError(f"the history has no call {lost[0]!r} that its result could be of")

    async def again(message: ChatMessageContent, at: int, item: FunctionResultContent) -> None:
        if item.id in noes:
            REJECTING.set(Rejection(noes[item.id], item.metadata[WAITING]["approval_id"]))
        told = ChatHistory()
        await kernel.invoke_function_call(calls[item.id], told, arguments=arguments)
        # At once: what has run is kept, whatever becomes of the calls beside it.
        message.items[at] = told.messages[-1].items[0]

    # Each in a task of its own, as the framework carries out the calls of a turn.
    await asyncio.gather(*(again(*each) for each in held))
    return waiting(chat_history)


def _held(chat_history: ChatHistory) -> Iterator[tuple[ChatMessageContent, int, FunctionResultContent]]:
    for message in chat_history.messages:
        for at, item in enumerate(message.items):
            if isinstance(item, FunctionResultContent) and WAITING in item.metadata:
                yield message, at, item
