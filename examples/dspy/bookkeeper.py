"""A DSPy program whose payments wait for a person, within the run."""

import json
import os
from pathlib import Path
from typing import Any

import dspy
from dspy.utils import DummyLM

from toolgate_integrations.dspy import guard_tools

INVOICES = {"INV-7": 120.5}
TASK = "Read invoice INV-7, then pay it: one tool call each. What was done, and what was not?"


def read_invoice(number: str) -> str:
    """Look at an invoice."""
    return f"{number}: {INVOICES[number]:.2f} euros, from Ada Ltd."


def pay_invoice(number: str, amount: float) -> str:
    """Pay an invoice."""
    with Path(os.environ.get("PAYMENTS_FILE", "payments.txt")).open("a") as payments:
        payments.write(f"{number} {amount:.2f}\n")
    return f"paid {amount:.2f} for {number}"


def scripted() -> Any:
    """Return the next reply of a scripted model, for runs without an API key."""
    calls = [
        ("read_invoice", {"number": "INV-7"}),
        ("pay_invoice", {"number": "INV-7", "amount": 120.5}),
        ("finish", {}),
    ]
    turns = [
        {"next_thought": "next", "next_tool_name": name, "next_tool_args": json.dumps(given)}
        for name, given in calls
    ]
    return DummyLM([*turns, {"reasoning": "both are done", "answer": "I read INV-7, and asked to pay it."}])


def run() -> str:
    """Read the invoice and pay it, once a person has approved.

    Returns:
        The answer of the model, and the result of the payment.
    """
    named = os.environ.get("DSPY_MODEL")
    program = dspy.ReAct(
        "question -> answer", tools=guard_tools([read_invoice, pay_invoice], on_hold="wait"), max_iters=5
    )
    # Such as openai/gpt-5-mini, with a key for it.
    with dspy.context(lm=dspy.LM(named) if named else scripted()):
        said = program(question=TASK)
    return f"{said.answer} Result of the payment: {said.trajectory.get('observation_1')}"


if __name__ == "__main__":
    print(run())
