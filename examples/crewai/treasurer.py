"""A crew whose payments wait for a person; kicked off again after the approval, it pays."""

import json
import os
from pathlib import Path
from typing import Any

from crewai import LLM, Agent, Crew, Task
from crewai.llms.base_llm import BaseLLM
from crewai.tools import tool

from toolgate_integrations.crewai import GuardHooks

INVOICES = {"INV-7": 120.5}
TASK = (
    "Read invoice INV-7, then pay it: one tool call each. Say in one sentence what was done and what was not."
)
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("read_invoice", {"number": "INV-7"}),
    ("pay_invoice", {"number": "INV-7", "amount": 120.5}),
)


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


class Scripted(BaseLLM):
    """Scripted model for runs without an API key."""

    def supports_function_calling(self) -> bool:
        """It calls functions natively."""
        return True

    def call(self, messages: Any, *_args: Any, **_options: Any) -> Any:
        """Make the next call, or say what came of the last."""
        results = [each["content"] for each in messages if each["role"] == "tool"]
        if len(results) == len(CALLS):
            return f"I read INV-7. Result of the payment: {results[-1]}"
        name, arguments = CALLS[len(results)]
        function = {"name": name, "arguments": json.dumps(arguments)}
        return [{"id": f"call-{len(results)}", "type": "function", "function": function}]

    async def acall(self, messages: Any, *_args: Any, **_options: Any) -> Any:
        """Asynchronous variant of `call`."""
        return self.call(messages)


def run() -> str:
    """Kick the crew off.

    Returns:
        The model's last words.
    """
    named = os.environ.get("CREWAI_MODEL")
    model = LLM(model=named) if named else Scripted(model="scripted")
    treasurer = Agent(
        role="treasurer",
        goal="Pay what is due.",
        backstory="Careful with money.",
        llm=model,
        tools=[read_invoice, pay_invoice],
    )
    task = Task(description=TASK, expected_output="One sentence.", agent=treasurer)
    # With GuardHooks(on_hold="wait"), the crew waits for the decision.
    with GuardHooks():
        return str(Crew(agents=[treasurer], tasks=[task], tracing=False).kickoff().raw)


if __name__ == "__main__":
    print(run())
