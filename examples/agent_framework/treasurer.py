"""Microsoft Agent Framework: payments require an approval, and the run is resumed in another process."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
)

from toolgate_integrations.agent_framework import GuardMiddleware

INVOICES = {"INV-7": 120.5}
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("read_invoice", {"number": "INV-7"}),
    ("pay_invoice", {"number": "INV-7", "amount": 120.5}),
)


def read_invoice(number: str) -> str:
    """Look at an invoice."""
    return f"{number}: {INVOICES[number]:.2f} euros, from Ada Ltd."


def pay_invoice(number: str, amount: float) -> str:
    """Pay an invoice."""
    with Path(os.environ.get("PAYMENTS_FILE", "payments.txt")).open("a") as payments:
        payments.write(f"{number} {amount:.2f}\n")
    return f"paid {amount:.2f} for {number}"


class Scripted(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """Scripted model for runs without an API key."""

    async def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_more: Any
    ) -> ChatResponse[Any]:
        del stream, options
        results = [each for one in messages for each in one.contents if each.type == "function_result"]
        if len(results) < len(CALLS):
            name, arguments = CALLS[len(results)]
            said = Content.from_function_call(
                call_id=f"call-{len(results)}", name=name, arguments=json.dumps(arguments)
            )
        else:
            said = Content.from_text(f"I read INV-7. Result of the payment: {results[-1].result}")
        return ChatResponse(messages=[Message(role="assistant", contents=[said])])


async def go_on(kept: str | None) -> tuple[str, str]:
    """Start a run, or resume the last one.

    Args:
        kept: What the last one left, if there was one.

    Returns:
        The model's last words, or what waits for a person; and what to keep.
    """
    agent = Agent(
        client=Scripted(),
        name="treasurer",
        tools=[read_invoice, pay_invoice],
        middleware=[*GuardMiddleware()],
    )
    task: str | Message = "Read invoice INV-7, then pay it."
    session = AgentSession(session_id="INV-7")
    if kept is not None:
        state, requests = json.loads(kept)
        session = AgentSession.from_dict(state)
        # It only wakes the run: whether the payment is approved is what the gateway is asked.
        woken = [Content.from_dict(each).to_function_approval_response(True) for each in requests]
        task = Message(role="user", contents=woken)
    result = await agent.run(task, session=session)
    waiting = result.user_input_requests
    held = [each.additional_properties for each in waiting]
    told = [f"waits for a person: {each['action']}, approval {each['approval_id']}" for each in held]
    left = json.dumps([session.to_dict(), [each.to_dict() for each in waiting]])
    return "\n".join(told) or result.text, left


def run(file: Path) -> str:
    """One run; the file tells where the last one stopped."""
    said, left = asyncio.run(go_on(file.read_text() if file.exists() else None))
    file.write_text(left)
    return said


if __name__ == "__main__":
    print(run(Path(sys.argv[1] if len(sys.argv) > 1 else "treasurer.json")))
