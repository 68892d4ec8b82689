"""Anthropic tool runner: payments require an approval, and the run is resumed in another process."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx2
from anthropic import Anthropic, beta_tool

from toolgate_integrations.anthropic import GuardedRun, guard_tools, resume

INVOICES = {"INV-7": 120.5}
TASK = (
    "Read invoice INV-7, then pay it: one tool call each. Say in one sentence what was done and what was not."
)


@beta_tool
def read_invoice(number: str) -> str:
    """Look at an invoice."""
    return f"{number}: {INVOICES[number]:.2f} euros, from Ada Ltd."


@beta_tool
def pay_invoice(number: str, amount: float) -> str:
    """Pay an invoice."""
    with Path(os.environ.get("PAYMENTS_FILE", "payments.txt")).open("a") as payments:
        payments.write(f"{number} {amount:.2f}\n")
    return f"paid {amount:.2f} for {number}"


def scripted(request: httpx2.Request) -> httpx2.Response:
    """Return the next reply of a scripted model, for runs without an API key."""
    body = json.loads(request.content)
    said = [
        block for each in body["messages"] if isinstance(each["content"], list) for block in each["content"]
    ]
    results = [each["content"] for each in said if each["type"] == "tool_result"]
    block: dict[str, Any]
    if not results:
        block = {"type": "tool_use", "id": "call-1", "name": "read_invoice", "input": {"number": "INV-7"}}
    elif len(results) == 1:
        given = {"number": "INV-7", "amount": 120.5}
        block = {"type": "tool_use", "id": "call-2", "name": "pay_invoice", "input": given}
    else:
        block = {"type": "text", "text": f"I read INV-7. Result of the payment: {results[-1]}"}
    reason = "tool_use" if block["type"] == "tool_use" else "end_turn"
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg-1", "type": "message", "role": "assistant", "model": body["model"], "usage": usage}
    return httpx2.Response(200, json={**message, "content": [block], "stop_reason": reason})


def model() -> Anthropic:
    """The API, or the script in its place."""
    if os.environ.get("ANTHROPIC_API_KEY"):
        return Anthropic()
    return Anthropic(api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(scripted)))


def run(file: Path) -> str:
    """Start a run, or resume the last one. The file contains its state.

    Returns:
        The model's last words, or what waits for a person.
    """
    tools = guard_tools([read_invoice, pay_invoice])
    with model() as client:

        def runner(messages: list[Any]) -> Any:
            return client.beta.messages.tool_runner(
                model=os.environ.get("ANTHROPIC_MODEL") or "claude-sonnet-4-5",
                max_tokens=1000,
                messages=messages,
                tools=tools,
                thread=False,
            )

        if file.exists():
            # It only wakes the run: whether the payment is approved is what the gateway is asked.
            paused = resume(json.loads(file.read_text()), tools, runner)
        else:
            paused = GuardedRun(runner([{"role": "user", "content": TASK}]))
        message = paused.until_done()
    if message is None:
        file.write_text(json.dumps(paused.state))
        return "\n".join(
            f"waits for a person: {each.name}, approval {each.approval_id}" for each in paused.held
        )
    return str(message.content[0].text)


if __name__ == "__main__":
    print(run(Path(sys.argv[1] if len(sys.argv) > 1 else "invoices.json")))
