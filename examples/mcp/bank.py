"""MCP server with three tools, whose calls are checked by the gateway."""

import os
from pathlib import Path

from mcp.server import MCPServer

from toolgate_integrations.mcp import GuardExtension

server = MCPServer(
    "bank",
    extensions=[GuardExtension(approval_page=os.environ.get("BANK_APPROVAL_PAGE"))],
)
BOOK = Path(os.environ.get("BANK_BOOK", "bank.txt"))


@server.tool()
def balance(account: str) -> str:
    """Return the balance of an account."""
    return f"{account} holds 1200"


@server.tool()
def pay(to: str, amount: int) -> str:
    """Send a payment."""
    with BOOK.open("a") as book:
        book.write(f"{to} {amount}\n")
    return f"paid {amount} to {to}"


@server.tool()
def close_account(account: str) -> str:
    """Close an account permanently."""
    with BOOK.open("a") as book:
        book.write(f"closed {account}\n")
    return f"closed {account}"


if __name__ == "__main__":
    server.run("stdio")
