"""An MCP client that calls the three tools, as a chat application would for its model.

Calls that require an approval are shown to the user. Enter resumes such a call; it runs only if the gateway has an
approval for it.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client
from mcp_types import ElicitResult

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("balance", {"account": "savings"}),
    ("close_account", {"account": "savings"}),
    ("pay", {"to": "eve", "amount": 40}),
]


async def ask(_context: object, question: Any) -> ElicitResult:
    """Show where to decide, and wait until the user comes back."""
    print(f"  {question.message}", *([question.url] if question.mode == "url" else []), flush=True)
    said = await asyncio.to_thread(input, "  Enter to continue, n to cancel: ")
    return ElicitResult(action="decline" if said.strip() == "n" else "accept")


async def main() -> None:
    """Call every tool and print the results."""
    bank = str(Path(__file__).with_name("bank.py"))
    server = StdioServerParameters(command=sys.executable, args=[bank], env=dict(os.environ))
    async with Client(stdio_client(server), elicitation_callback=ask) as client:
        for tool, arguments in CALLS:
            print(f"{tool} {arguments}", flush=True)
            result = await client.call_tool(tool, arguments)
            print("  ->", *(getattr(each, "text", "") for each in result.content), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
