"""A Pydantic AI agent whose payments require an approval, and whose run is resumed in another process."""

import os
import sys
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from toolgate_integrations.pydantic_ai import GuardCapability

INVOICES = {"INV-7": 120.5}
TASK = (
    "Read invoice INV-7, then pay it: one tool call each. Say in one sentence what was done and what was not."
)


def read_invoice(number: str) -> str:
    """Look at an invoice."""
    return f"{number}: {INVOICES[number]:.2f} euros, from Ada Ltd."


def pay_invoice(number: str, amount: float) -> str:
    """Pay an invoice."""
    with Path(os.environ.get("PAYMENTS_FILE", "payments.txt")).open("a") as payments:
        payments.write(f"{number} {amount:.2f}\n")
    return f"paid {amount:.2f} for {number}"


def scripted(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Return the next reply of a scripted model, for runs without an API key."""
    results = [part for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]
    if not results:
        return ModelResponse([ToolCallPart("read_invoice", {"number": "INV-7"})])
    if len(results) == 1:
        return ModelResponse([ToolCallPart("pay_invoice", {"number": "INV-7", "amount": 120.5})])
    return ModelResponse([TextPart(f"I read INV-7. Result of the payment: {results[-1].content}")])


def run(history: Path) -> str:
    """Start a run, or resume the last one. The history contains its state.

    Returns:
        The model's last words, or what waits for a person.
    """
    model: Any = os.environ.get("PYDANTIC_AI_MODEL") or FunctionModel(scripted)
    agent = Agent(
        model,
        name="accountant",
        tools=[read_invoice, pay_invoice],
        output_type=[str, DeferredToolRequests],
        capabilities=[GuardCapability()],
    )
    if history.exists():
        messages = ModelMessagesTypeAdapter.validate_json(history.read_bytes())
        last = messages[-1] if isinstance(messages[-1], ModelResponse) else messages[-2]
        answered = {part.tool_call_id for part in messages[-1].parts if isinstance(part, ToolReturnPart)}
        calls = last.parts if isinstance(last, ModelResponse) else []
        waiting = [each.tool_call_id for each in calls if isinstance(each, ToolCallPart)]
        # It only wakes the run: whether the payment is approved is what the gateway is asked.
        woken = DeferredToolResults(approvals={each: True for each in waiting if each not in answered})
        result = agent.run_sync(message_history=messages, deferred_tool_results=woken)
    else:
        result = agent.run_sync(TASK)
    history.write_bytes(result.all_messages_json())
    if isinstance(result.output, DeferredToolRequests):
        held = result.output.metadata.values()
        return "\n".join(
            f"waits for a person: {each['action']}, approval {each['approval_id']}" for each in held
        )
    return str(result.output)


if __name__ == "__main__":
    print(run(Path(sys.argv[1] if len(sys.argv) > 1 else "invoices.json")))
