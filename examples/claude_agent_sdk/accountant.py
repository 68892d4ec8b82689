"""An agent of the Claude Agent SDK whose payments wait for a person."""

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query, tool

from toolgate_integrations.claude_agent_sdk import guard_options

INVOICES = {"INV-7": 120.5}
TASK = (
    "Read invoice INV-7, then pay it: one tool call each. Say in one sentence what was done and what was not."
)


@tool("read_invoice", "Look at an invoice.", {"number": str})
async def read_invoice(given: dict[str, Any]) -> dict[str, Any]:
    """Look at an invoice."""
    return said(f"{given['number']}: {INVOICES[given['number']]:.2f} euros, from Ada Ltd.")


@tool("pay_invoice", "Pay an invoice.", {"number": str, "amount": float})
async def pay_invoice(given: dict[str, Any]) -> dict[str, Any]:
    """Pay an invoice."""
    await asyncio.to_thread(transfer, given["number"], given["amount"])
    return said(f"paid {given['amount']:.2f} for {given['number']}")


def transfer(number: str, amount: float) -> None:
    """Write the payment to the file of payments."""
    with Path(os.environ.get("PAYMENTS_FILE", "payments.txt")).open("a") as payments:
        payments.write(f"{number} {amount:.2f}\n")


def said(text: str) -> dict[str, Any]:
    """Return a text as the result of a tool."""
    return {"content": [{"type": "text", "text": text}]}


async def run(env: dict[str, str]) -> str:
    """Let the agent do its task; returns its last words."""
    options = guard_options(
        ClaudeAgentOptions(
            mcp_servers={"bank": create_sdk_mcp_server("bank", tools=[read_invoice, pay_invoice])},
            # The agent's own permissions; what the gateway says comes on top.
            allowed_tools=["mcp__bank__read_invoice", "mcp__bank__pay_invoice"],
            tools=[],
            setting_sources=[],
            model=os.environ.get("CLAUDE_MODEL"),
            env=env,
            stderr=lambda _: None,
        ),
        on_hold="wait",
    )
    text = ""
    async for message in query(prompt=TASK, options=options):
        if isinstance(message, ResultMessage):
            text = str(message.result)
    return text


class Scripted(BaseHTTPRequestHandler):
    """Scripted model for runs without an API key."""

    def do_POST(self) -> None:
        """Answer with the next call, or with what came of them."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked.get("stream"):
            # The client asks again, for all of it at once.
            return self._answer(
                404, {"type": "error", "error": {"type": "not_found_error", "message": "no streams"}}
            )
        blocks = [b for m in asked["messages"] if isinstance(m["content"], list) for b in m["content"]]
        results = [each["content"] for each in blocks if each["type"] == "tool_result"]
        calls: list[tuple[str, dict[str, Any]]] = [
            ("read_invoice", {"number": "INV-7"}),
            ("pay_invoice", {"number": "INV-7", "amount": 120.5}),
        ]
        block: dict[str, Any]
        if len(results) < len(calls):
            name, given = calls[len(results)]
            block = {
                "type": "tool_use",
                "id": f"toolu_{len(results)}",
                "name": f"mcp__bank__{name}",
                "input": given,
            }
        else:
            last = results[-1] if isinstance(results[-1], str) else results[-1][0]["text"]
            block = {"type": "text", "text": f"I read INV-7. Result of the payment: {last}"}
        return self._answer(
            200,
            {
                "id": f"msg_{len(results)}",
                "type": "message",
                "role": "assistant",
                "model": asked["model"],
                "content": [block],
                "stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            },
        )

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@contextmanager
def model() -> Iterator[dict[str, str]]:
    """The environment of a real model where there is a key for one, else of the scripted."""
    if os.environ.get("ANTHROPIC_API_KEY"):
        yield {}
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        yield {
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_port}",
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_MODEL": "scripted",
            "CLAUDE_CONFIG_DIR": home,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "NO_PROXY": "127.0.0.1",
        }
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    with model() as env:
        print(asyncio.run(run(env)))
