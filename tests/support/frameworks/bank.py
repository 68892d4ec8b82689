"""An MCP server over standard input and output, with the scene's four tools; run as a script."""

import importlib
from importlib.metadata import version
from typing import Any

if version("mcp").startswith("1."):
    made: Any = importlib.import_module("mcp.server.fastmcp").FastMCP
else:
    made = importlib.import_module("mcp.server").MCPServer
server = made("calls itself something else")


@server.tool()
def look(what: str) -> str:
    """Look at something."""
    return f"seen {what}"


@server.tool()
def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


@server.tool()
def drop(table: str) -> str:
    """Drop a table."""
    return f"dropped {table}"


@server.tool()
def burn(what: str) -> str:
    """Fail."""
    raise RuntimeError(f"{what} does not burn")


if __name__ == "__main__":
    server.run()
