"""An MCP server over standard input and output, with the scene's four tools; run as a script."""

from typing import Any

try:
    from mcp.server import MCPServer
except ImportError:  # mcp before 2.0
    from mcp.server.fastmcp import FastMCP as MCPServer  # type: ignore[no-redef]

server: Any = MCPServer("calls itself something else")


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
