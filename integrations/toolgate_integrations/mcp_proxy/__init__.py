"""The command `toolgate mcp-proxy`, which guards an unmodified MCP server that is reached over stdio or HTTP."""

from toolgate_integrations.base import require

require("mcp")

from toolgate_integrations.mcp_proxy.backend import Address, Command
from toolgate_integrations.mcp_proxy.server import serve

__all__ = ["Address", "Command", "serve"]
