"""A LlamaIndex agent whose payments require an approval, and whose run is resumed in another process."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.utils import get_tokenizer
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent, StopEvent
from workflows.context.serializers import PickleSerializer
from workflows.events import WorkflowIdleEvent

from toolgate_integrations.llamaindex import guard_agent

INVOICES = {"INV-7": 120.5}
TASK = "Read invoice INV-7, then pay it. Say in one sentence what was done and what was not."


def read_invoice(number: str) -> str:
    """Look at an invoice."""
    return f"{number}: {INVOICES[number]:.2f} euros, from Ada Ltd."


def pay_invoice(number: str, amount: float) -> str:
    """Pay an invoice."""
    with Path(os.environ.get("PAYMENTS_FILE", "payments.txt")).open("a") as payments:
        payments.write(f"{number} {amount:.2f}\n")
    return f"paid {amount:.2f} for {number}"


def scripted(messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
    """Return the next reply of a scripted model."""
    results = [str(each.content) for each in messages if each.role.value == "tool"]
    if len(results) > 1:
        return ChatMessage(role="assistant", content=f"I read INV-7. Result of the payment: {results[1]}")
    name, arguments = [
        ("read_invoice", {"number": "INV-7"}),
        ("pay_invoice", {"number": "INV-7", "amount": 120.5}),
    ][len(results)]
    call = ToolCallBlock(tool_call_id=f"call-{len(results)}", tool_name=name, tool_kwargs=arguments)
    return ChatMessage(role="assistant", blocks=[call])


async def until_idle(events: Any) -> list[InputRequiredEvent] | None:
    """Return the pending approval requests when the run is idle; None if the run has ended."""
    asked = []
    async for event in events:
        if isinstance(event, InputRequiredEvent):
            asked.append(event)
        elif isinstance(event, StopEvent):
            return None
        elif isinstance(event, WorkflowIdleEvent):
            break
    return asked


async def run(kept: dict[str, Any] | None) -> tuple[str, dict[str, Any] | None]:
    """Start a run, or resume the last one.

    Returns:
        The model's last words, or what waits for a person; and what to keep, if the run is paused.
    """
    llm = MockFunctionCallingLLM(response_generator=scripted, is_chat_model=True)
    agent = guard_agent(FunctionAgent(name="accountant", tools=[read_invoice, pay_invoice], llm=llm))
    serializer = PickleSerializer()
    if kept is not None:
        # The memory names a tokenizer, which comes along with LlamaIndex: without this line it is looked for on the network.
        get_tokenizer()
        handler = agent.run(ctx=Context.from_dict(agent, kept["context"], serializer=serializer))
        events = handler.stream_events(expose_internal=True)
        await until_idle(events)
        for approval_id in kept["waiting"]:
            # It only wakes the run: whether the payment is approved is what the gateway is asked.
            handler.ctx.send_event(HumanResponseEvent(response="yes", approval_id=approval_id))
    else:
        handler = agent.run(user_msg=TASK, ctx=Context(agent))
        events = handler.stream_events(expose_internal=True)
    asked = await until_idle(events)
    if asked is None:
        return str(await handler), None
    waiting = [each.approval_id for each in asked]
    paused = {"waiting": waiting, "context": handler.ctx.to_dict(serializer=serializer)}
    await handler.cancel_run()
    said = [f"waits for a person: {each.action}, approval {each.approval_id}" for each in asked]
    return "\n".join(said), paused


def main(file: Path) -> str:
    """Run, and keep in the file what the next process needs."""
    said, paused = asyncio.run(run(json.loads(file.read_text()) if file.exists() else None))
    if paused is not None:
        file.write_text(json.dumps(paused))
    return said


if __name__ == "__main__":
    print(main(Path(sys.argv[1] if len(sys.argv) > 1 else "invoices.json")))
