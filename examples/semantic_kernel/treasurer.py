"""A Semantic Kernel agent whose payments require an approval, and whose run is resumed in another process."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent, ChatHistoryAgentThread
from semantic_kernel.connectors.ai.chat_completion_client_base import ChatCompletionClientBase
from semantic_kernel.contents import (
    AuthorRole,
    ChatHistory,
    ChatMessageContent,
    FunctionCallContent,
    FunctionResultContent,
    TextContent,
)
from semantic_kernel.functions import KernelArguments, kernel_function

from toolgate_integrations.semantic_kernel import aresume, guard_kernel, waiting

INVOICES = {"INV-7": 120.5}


class Invoices:
    """Tools of the agent."""

    @kernel_function
    def read(self, number: str) -> str:
        """Look at an invoice."""
        return f"{number}: {INVOICES[number]:.2f} euros, from Ada Ltd."

    @kernel_function
    def pay(self, number: str, amount: float) -> str:
        """Pay an invoice."""
        with Path(os.environ.get("PAYMENTS_FILE", "payments.txt")).open("a") as payments:
            payments.write(f"{number} {amount:.2f}\n")
        return f"paid {amount:.2f} for {number}"


class Scripted(ChatCompletionClientBase):
    """Scripted model: it reads the invoice, pays it and reports the result."""

    SUPPORTS_FUNCTION_CALLING = True

    async def _inner_get_chat_message_contents(self, chat_history: Any, settings: Any) -> list[Any]:  # noqa: ARG002 - the framework's signature
        calls = [("read", {"number": "INV-7"}), ("pay", {"number": "INV-7", "amount": 120.5})]
        items = [item for message in chat_history.messages for item in message.items]
        results = [each for each in items if isinstance(each, FunctionResultContent)]
        said: Any
        if len(results) < len(calls):
            name, arguments = calls[len(results)]
            call_id = f"call-{len(results)}"
            said = FunctionCallContent(id=call_id, name=f"invoices-{name}", arguments=json.dumps(arguments))
        else:
            said = TextContent(text=f"I read INV-7. Result of the payment: {results[-1]}")
        return [ChatMessageContent(role=AuthorRole.ASSISTANT, items=[said])]

    def _update_function_choice_settings_callback(self) -> Callable[..., None]:
        return lambda *_, **__: None

    def _reset_function_choice_settings(self, settings: Any) -> None:
        """Nothing was set."""

    def _verify_function_choice_settings(self, settings: Any) -> None:
        """All of them will do."""


async def go_on(history: ChatHistory) -> tuple[str, ChatHistory]:
    """Start with an empty history, or resume the last run.

    Returns:
        The model's last words, and the history with what came of it.
    """
    kernel = Kernel(services=Scripted(ai_model_id="scripted"))
    kernel.add_plugin(Invoices(), "invoices")
    agent = ChatCompletionAgent(kernel=guard_kernel(kernel), name="treasurer")
    arguments = KernelArguments(toolgate_run_id="INV-7")
    said = None if history.messages else "Read invoice INV-7, then pay it."
    # `aresume` asks the gateway for the decision.
    if await aresume(kernel, history, arguments=arguments):
        return "", history
    thread = ChatHistoryAgentThread(chat_history=history)
    response = await agent.get_response(said, thread=thread, arguments=arguments)
    return str(response.message.content), ChatHistory(messages=[each async for each in thread.get_messages()])


def run(file: Path) -> str:
    """One step; the file has the history.

    Returns:
        The model's last words, or what waits for a person.
    """
    history = ChatHistory.restore_chat_history(file.read_text()) if file.exists() else ChatHistory()
    answer, history = asyncio.run(go_on(history))
    file.write_text(history.serialize())
    held = waiting(history).values()
    return "\n".join(f"waits for a person: approval {each}" for each in held) or answer


if __name__ == "__main__":
    print(run(Path(sys.argv[1] if len(sys.argv) > 1 else "history.json")))
