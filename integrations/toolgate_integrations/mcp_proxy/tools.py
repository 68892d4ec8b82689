"""The tools of the server behind the proxy: what the client is shown of them, and whether one may be called at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final

from mcp import MCPError
from mcp_types import INTERNAL_ERROR, PaginatedRequestParams, Tool

from toolgate import ConfigurationError
from toolgate_integrations._mcp_pins import Pin, Pins
from toolgate_integrations._schema_defaults import with_defaults
from toolgate_integrations.mcp_proxy.backend import Backend

__all__ = ["Tools"]

#: a server whose list never ends has none
_MOST_PAGES: Final = 200


class Tools:
    """What the server lists, held to what it said when it was trusted.

    Args:
        backend: The server.
        pins: What its tools said.
        name: The name under which it is configured here.
        action_of: The action of a tool.
        granted: The actions the agent has a permission for, or None while nobody can say; None shows every tool.
    """

    def __init__(
        self,
        backend: Backend,
        pins: Pins,
        name: str,
        action_of: Callable[[str], str],
        granted: Callable[[], Awaitable[Collection[str] | None]] | None,
    ) -> None:
        self._backend, self._pins, self._name = backend, pins, name
        self._action_of, self._granted = action_of, granted
        self._known: Mapping[str, Pin] = {}

    async def shown(self) -> list[Tool]:
        """What the client may see: of a tool that changed, what it said when it was trusted.

        Raises:
            MCPError: The server does not list its tools, or they cannot be told apart from others.
        """
        try:
            tools, pins = await self._list()
        except ConfigurationError as error:
            raise MCPError(code=INTERNAL_ERROR, message=f"no tool may run: {error}") from error
        granted = None if self._granted is None else await self._granted()
        return [
            pins[tool.name].tool if pins[tool.name].changed else tool
            for tool in tools
            if granted is None or self._is_granted(tool.name, granted)
        ]

    async def doubt(self, tool: str) -> str | None:
        """Why a tool may not be called, by what the server lists now; None if it may.

        Args:
            tool: Its name.
        """
        try:
            _, pins = await self._list()
        except (ConfigurationError, MCPError) as error:
            return f"No tool of the server {self._name!r} may run: {error}."
        pin = pins.get(tool)
        if pin is None:
            return f"The server {self._name!r} lists no tool called {tool!r}."
        if pin.changed:
            return (
                f"The tool {tool!r} of the server {self._name!r} says something else of itself than when it was "
                f"trusted. Asking again does not help before its operator has looked, with `toolgate mcp trust "
                f"{self._name}`."
            )
        return None

    def completed(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of arguments with the defaults of the tool's pinned input schema.

        Raises:
            SchemaDefaultError: The defaults cannot be filled in.
        """
        return with_defaults(self._known[tool].tool.input_schema, arguments)

    def _is_granted(self, tool: str, granted: Collection[str]) -> bool:
        try:
            return self._action_of(tool) in granted
        except ConfigurationError:
            # Two tools would be one action: a call of it says so.
            return True

    async def _list(self) -> tuple[list[Tool], Mapping[str, Pin]]:
        tools = await self._pages()
        self._known = self._pins.see(tools)
        return tools, self._known

    async def _pages(self) -> list[Tool]:
        session, cursor, tools = self._backend.session, None, list[Tool]()
        for _ in range(_MOST_PAGES):
            try:
                page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            except MCPError as error:
                self._backend.lists_nothing(error)
                raise
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return tools
        raise MCPError(code=INTERNAL_ERROR, message=f"the server {self._name!r} lists its tools without end")
