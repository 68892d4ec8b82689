"""A smolagents agent whose payments wait for a person, within the run."""

import os
from pathlib import Path
from typing import Any

from smolagents import LiteLLMModel, LogLevel, ToolCallingAgent, tool
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
    Model,
)

from toolgate_integrations.smolagents import guard_agent

INVOICES = {"INV-7": 120.5}
TASK = (
    "Read invoice INV-7, then pay it: one tool call each. Say in one sentence what was done and what was not."
)


@tool
def read_invoice(number: str) -> str:
    """Look at an invoice.

    Args:
        number: The invoice's number.
    """
    return f"{number}: {INVOICES[number]:.2f} euros, from Ada Ltd."


@tool
def pay_invoice(number: str, amount: float) -> str:
    """Pay an invoice.

    Args:
        number: The invoice's number.
        amount: What to pay, in euros.
    """
    with Path(os.environ.get("PAYMENTS_FILE", "payments.txt")).open("a") as payments:
        payments.write(f"{number} {amount:.2f}\n")
    return f"paid {amount:.2f} for {number}"


class Scripted(Model):
    """Scripted model for runs without an API key."""

    def generate(self, messages: list[ChatMessage], *_: Any, **__: Any) -> ChatMessage:
        """The next turn, by how many results there are."""
        results = [each for each in messages if each.role == MessageRole.TOOL_RESPONSE]
        if not results:
            return self._call("read_invoice", number="INV-7")
        if len(results) == 1:
            return self._call("pay_invoice", number="INV-7", amount=120.5)
        told = results[-1].content[0]["text"]
        return self._call("final_answer", answer=f"I read INV-7. Result of the payment: {told}")

    def _call(self, name: str, **arguments: Any) -> ChatMessage:
        function = ChatMessageToolCallFunction(name=name, arguments=arguments)
        call = ChatMessageToolCall(id=f"call-{name}", type="function", function=function)
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call])


def run() -> str:
    """Read the invoice and pay it, once a person has approved.

    Returns:
        The model's last words.
    """
    named = os.environ.get("SMOLAGENTS_MODEL")
    agent = guard_agent(
        ToolCallingAgent(
            # Such as openai/gpt-5-mini, with a key for it.
            model=LiteLLMModel(named) if named else Scripted(),
            name="clerk",
            tools=[read_invoice, pay_invoice],
            verbosity_level=LogLevel.OFF,
        ),
        on_hold="wait",
    )
    return str(agent.run(TASK))


if __name__ == "__main__":
    print(run())
