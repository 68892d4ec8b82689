"""An Agno agent whose payments require an approval, and whose run is resumed in another process."""

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from agno.agent import Agent
from agno.db.json import JsonDb
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse

from toolgate_integrations.agno import guard_agent, resume

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


class Scripted(Model):
    """Scripted model for runs without an API key."""

    def invoke(self, messages: list[Message], *_: Any, **__: Any) -> ModelResponse:
        """The next turn, by how many results there are."""
        results = [each for each in messages if each.role == "tool"]
        if results and results[-1].tool_name == "pay_invoice":
            return ModelResponse(
                role="assistant",
                content=f"I read INV-7. Result of the payment: {results[-1].content}",
            )
        name = "pay_invoice" if results else "read_invoice"
        arguments = {"number": "INV-7", **({"amount": 120.5} if results else {})}
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"call-{name}", "type": "function", "function": function}
        return ModelResponse(role="assistant", tool_calls=[call])

    async def ainvoke(self, messages: list[Message], *_: Any, **__: Any) -> ModelResponse:
        """Asynchronous variant of `invoke`."""
        return self.invoke(messages)

    def invoke_stream(self, messages: list[Message], *_: Any, **__: Any) -> Iterator[ModelResponse]:
        """Variant of `invoke` that streams one chunk."""
        yield self.invoke(messages)

    async def ainvoke_stream(
        self, messages: list[Message], *_: Any, **__: Any
    ) -> AsyncIterator[ModelResponse]:
        """Variant of `invoke` that streams one chunk."""
        yield self.invoke(messages)

    def _parse_provider_response(self, response: Any, **_: Any) -> Any:
        return response

    def _parse_provider_response_delta(self, response: Any) -> Any:
        return response


def run(folder: Path) -> str:
    """Start a run, or resume the last one. The session contains its state.

    Returns:
        The model's last words, or what waits for a person.
    """
    agent = guard_agent(
        Agent(
            # Such as openai:gpt-5-mini, with that provider's package and key.
            model=os.environ.get("AGNO_MODEL") or Scripted(id="scripted"),
            name="cashier",
            tools=[read_invoice, pay_invoice],
            db=JsonDb(str(folder)),
            session_id="INV-7",
            telemetry=False,
        )
    )
    last = agent.get_last_run_output("INV-7") if folder.exists() else None
    paused = last if last is not None and last.is_paused else agent.run(TASK)
    done = resume(agent, paused)
    calls = [each.tool_execution for each in done.active_requirements]
    if done.is_paused:
        return "\n".join(
            f"waits for a person: {each.tool_name}, approval {each.approval_id}" for each in calls if each
        )
    return str(done.content)


if __name__ == "__main__":
    print(run(Path(sys.argv[1] if len(sys.argv) > 1 else "sessions")))
