"""``toolgate mcp``: servers of tools that stand behind ``toolgate mcp-proxy``."""

import typer

from toolgate_cli.mcp.trusting import trust

mcp = typer.Typer(name="mcp", help="Servers behind toolgate mcp-proxy.", no_args_is_help=True)
mcp.command()(trust)
