"""An AutoGen agent whose payments wait for a person."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import TextMessage
from autogen_core import FunctionCall
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelInfo,
    RequestUsage,
)

from toolgate_integrations.autogen import GuardedWorkbench

INVOICES = {"INV-7": 120.5}
TASK = "Read invoice INV-7, then pay it. Say in one sentence what was done and what was not."
NOTHING = RequestUsage(prompt_tokens=0, completion_tokens=0)


def read_invoice(number: str) -> str:
    """Look at an invoice."""
    return f"{number}: {INVOICES[number]:.2f} euros, from Ada Ltd."


def pay_invoice(number: str, amount: float) -> str:
    """Pay an invoice."""
    with Path(os.environ.get("PAYMENTS_FILE", "payments.txt")).open("a") as payments:
        payments.write(f"{number} {amount:.2f}\n")
    return f"paid {amount:.2f} for {number}"


class Scripted(ChatCompletionClient):
    """Scripted model."""

    async def create(self, messages: Sequence[LLMMessage], **_: Any) -> CreateResult:
        """Return the next scripted reply: read, pay, report the result."""
        answers = [each for each in messages if isinstance(each, FunctionExecutionResultMessage)]
        if len(answers) > 1:
            said = f"I read INV-7. Result of the payment: {answers[-1].content[0].content}"
            return CreateResult(finish_reason="stop", content=said, usage=NOTHING, cached=False)
        name, arguments = [
            ("read_invoice", {"number": "INV-7"}),
            ("pay_invoice", {"number": "INV-7", "amount": 120.5}),
        ][len(answers)]
        call = FunctionCall(id=f"call-{len(answers)}", name=name, arguments=json.dumps(arguments))
        return CreateResult(finish_reason="function_calls", content=[call], usage=NOTHING, cached=False)

    async def create_stream(
        self, messages: Sequence[LLMMessage], **_: Any
    ) -> AsyncGenerator[str | CreateResult, None]:
        """Streaming variant of `create`."""
        yield await self.create(messages)

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    def actual_usage(self) -> RequestUsage:
        """Return zero: the model is scripted."""
        return NOTHING

    def total_usage(self) -> RequestUsage:
        """Return zero: the model is scripted."""
        return NOTHING

    def count_tokens(self, messages: Sequence[LLMMessage], **_: Any) -> int:  # noqa: ARG002 - the framework's signature
        """Return zero: the model is scripted."""
        return 0

    def remaining_tokens(self, messages: Sequence[LLMMessage], **_: Any) -> int:  # noqa: ARG002 - likewise
        """Return a number that is always sufficient."""
        return 1000

    @property
    def capabilities(self) -> Any:
        """Former name of `model_info`."""
        return self.model_info

    @property
    def model_info(self) -> ModelInfo:
        """It calls functions."""
        return ModelInfo(
            vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False
        )


async def run() -> str:
    """Let the accountant do its work; returns its last words."""
    agent = AssistantAgent(
        "accountant",
        Scripted(),
        workbench=GuardedWorkbench([read_invoice, pay_invoice], agent="accountant", on_hold="wait"),
        max_tool_iterations=5,
    )
    result = await agent.run(task=TASK)
    last = result.messages[-1]
    return last.content if isinstance(last, TextMessage) else ""


if __name__ == "__main__":
    print(asyncio.run(run()))
