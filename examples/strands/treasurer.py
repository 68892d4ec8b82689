"""A Strands agent whose payments require an approval, and whose run is resumed in another process."""

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from strands import Agent, tool
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager

from toolgate_integrations.strands import GuardPlugin

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


class Scripted(Model):
    """Scripted model: it reads the invoice, pays it and reports the result."""

    def update_config(self, **_: Any) -> None:
        """Nothing can be configured."""

    def get_config(self) -> dict[str, Any]:
        """Nothing is."""
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        """Raise an error: the agent does not use structured output."""
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Say what comes next, by how many results there are."""
        blocks = [
            block["toolResult"] for each in messages for block in each["content"] if "toolResult" in block
        ]
        calls = [("read_invoice", {"number": "INV-7"}), ("pay_invoice", {"number": "INV-7", "amount": 120.5})]
        start: dict[str, Any] = {}
        if len(blocks) < len(calls):
            name, arguments = calls[len(blocks)]
            start = {"toolUse": {"toolUseId": f"call-{len(blocks)}", "name": name}}
            said: dict[str, Any] = {"toolUse": {"input": json.dumps(arguments)}}
        else:
            said = {"text": f"I read INV-7. Result of the payment: {blocks[-1]['content'][0]['text']}"}
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": start}}
        yield {"contentBlockDelta": {"delta": said}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if start else "end_turn"}}


def run(folder: Path) -> str:
    """Start a run, or resume the last one. The folder contains its state.

    Returns:
        The model's last words, or what waits for a person.
    """
    agent = Agent(
        model=Scripted(),
        name="treasurer",
        agent_id="treasurer",
        tools=[read_invoice, pay_invoice],
        plugins=[GuardPlugin()],
        session_manager=FileSessionManager(session_id="INV-7", storage_dir=str(folder)),
        callback_handler=None,
    )
    waiting = folder / "waiting.json"
    if waiting.exists():
        # "y" only wakes the run: whether the payment is approved is what the gateway is asked.
        ids = json.loads(waiting.read_text())
        result = agent([{"interruptResponse": {"interruptId": each, "response": "y"}} for each in ids])
    else:
        result = agent("Read invoice INV-7, then pay it.")
    if result.stop_reason != "interrupt":
        return str(result).strip()
    waiting.write_text(json.dumps([each.id for each in result.interrupts]))
    held = [each.reason for each in result.interrupts]
    return "\n".join(f"waits for a person: {each['action']}, approval {each['approval_id']}" for each in held)


if __name__ == "__main__":
    print(run(Path(sys.argv[1] if len(sys.argv) > 1 else "sessions")))
