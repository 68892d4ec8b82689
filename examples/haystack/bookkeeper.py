"""A Haystack agent whose payments require an approval, and whose run is resumed in another process."""

import json
import os
import sys
from pathlib import Path

from haystack.components.agents import Agent
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools import tool

from toolgate_integrations.haystack import STOPPED, guard_hooks, held_calls, resume

INVOICES = {"INV-7": 120.5}


@tool
def read_invoice(number: str) -> str:
    """Look at an invoice."""
    return f"{number}: {INVOICES[number]:.2f} euros, from Ada Ltd."


@tool
def pay_invoice(number: str, amount: float) -> str:
    """Pay an invoice."""
    with Path(os.environ.get("PAYMENTS_FILE", "payments.txt")).open("a") as payments:
        payments.write(f"{number} {amount:.2f}\n")
    return f"paid {amount:.2f} for {number}"


def scripted(messages: list[ChatMessage]) -> ChatMessage:
    """Return the next reply of a scripted model."""
    results = [each for message in messages for each in message.tool_call_results]
    if not results:
        call = ToolCall("read_invoice", {"number": "INV-7"}, id="call-1")
        return ChatMessage.from_assistant(tool_calls=[call])
    if len(results) == 1:
        call = ToolCall("pay_invoice", {"number": "INV-7", "amount": 120.5}, id="call-2")
        return ChatMessage.from_assistant(tool_calls=[call])
    return ChatMessage.from_assistant(f"I read INV-7. Result of the payment: {results[-1].result}")


def run(file: Path) -> str:
    """Start a run, or resume the last one. The file contains its state.

    Returns:
        The model's last words, or what waits for a person.
    """
    agent = Agent(
        chat_generator=MockChatGenerator(response_fn=scripted),
        tools=[read_invoice, pay_invoice],
        hooks=guard_hooks(),
    )
    if file.exists():
        messages = [ChatMessage.from_dict(each) for each in json.loads(file.read_text())]
        # It only wakes the run: whether the payment is approved is what the gateway is asked.
        result = resume(agent, messages)
    else:
        result = agent.run([ChatMessage.from_user("Pay invoice INV-7.")])
    file.write_text(json.dumps([each.to_dict() for each in result["messages"]]))
    if result["exit_reason"] == STOPPED:
        return "\n".join(
            f"waits for a person: {each.tool_call.tool_name}, approval {each.approval_id}"
            for each in held_calls(result["messages"])
        )
    return str(result["last_message"].text)


if __name__ == "__main__":
    print(run(Path(sys.argv[1] if len(sys.argv) > 1 else "invoices.json")))
