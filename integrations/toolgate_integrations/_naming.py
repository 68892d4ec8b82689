"""A call of a tool, the action it is asked for under, and ids as the gateway takes them."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from toolgate import ConfigurationError, guarded_action, is_guarded
from toolgate_integrations._arguments import Received

__all__ = ["ToolActions", "ToolCall", "ToolNames", "function_of", "normalize_id"]

logger = logging.getLogger("toolgate")

#: actions by tool name, or a function that is given the name; None, or no entry, leaves the default
ToolActions: TypeAlias = Mapping[str, str] | Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of a framework.

    Attributes:
        name: The tool's name.
        arguments: What its function receives, by name; the gateway is asked about these.
        call_id: The framework's name of this call; the same when it is carried out again.
        run_id: The framework's name of what the call is part of, the same after a pause.
        agent: The framework agent's name.
        function: The Python function of the tool, if it is defined in this process.
        server: The name under which the tool's server is configured here, if the tool is a remote one; empty
            if nobody named it.
        own_name: The tool's name on its server, where the framework shows it by another.
        received: The validated arguments; None where the tool receives `arguments` as they are.
    """

    name: str
    arguments: Mapping[str, Any] = field(repr=False)
    call_id: str | None = None
    run_id: str | None = None
    agent: str | None = None
    function: object = None
    server: str | None = None
    own_name: str | None = None
    received: Received | None = field(default=None, compare=False, repr=False)

    def to_send(self, approved: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the framework is given, so that the tool receives exactly what was approved.

        Raises:
            ConfigurationError: The tool's validation makes other values of it.
        """
        return dict(approved) if self.received is None else self.received.to_send(approved)


class ToolNames:
    """Actions of tools, and the tools that have the default actions.

    Args:
        tool_actions: Actions of tools by their names, in place of the default.

    Raises:
        ConfigurationError: They are neither a mapping nor a function.
    """

    def __init__(self, tool_actions: ToolActions | None = None) -> None:
        if tool_actions is not None and not callable(tool_actions) and not isinstance(tool_actions, Mapping):
            raise ConfigurationError(
                f"tool_actions is {tool_actions!r}; pass a mapping, or a function of the name"
            )
        self._tool_actions = tool_actions
        self._dotted: dict[str, _Tool] = {}
        self._others: OrderedDict[str, _Tool] = OrderedDict()
        self._lock = threading.Lock()
        #: keys of `tool_actions` that a warning has named
        self._warned: set[str] = set()

    def verify(self, tools: Iterable[str], *, is_complete: bool = True) -> None:
        """Compare the keys of `tool_actions` with the names of the tools there are.

        A key that names none of them is a warning, once: the mapping may serve several agents.

        Args:
            tools: The names.
            is_complete: Whether there are no others; otherwise there is no warning.

        Raises:
            ConfigurationError: A key is misspelt: it is close to the name of a tool that has no key of its own.
        """
        known = sorted(set(tools))
        for key in self._keys() - set(known):
            meant = _closest(key, set(known) - self._keys())
            if meant is not None:
                listed = ", ".join(map(repr, known[:_LISTED])) + (", …" if len(known) > _LISTED else "")
                raise ConfigurationError(
                    f"tool_actions names the tool {key!r}, and there is none; did you mean {meant!r}? "
                    f"The tools are {listed}"
                )
            if is_complete:
                self._warn(
                    key, f"tool_actions names the tool {key!r}, which is not among the tools of this agent"
                )

    def action_of(self, call: ToolCall) -> str:
        """Return the action of a call: that of its guarded function, that in `tool_actions`, or the default.

        Raises:
            ConfigurationError: Two tools have the same default action, or the server has a name it may not have.
        """
        return guarded_action(call.function) or self._named(call.name) or self._default(call)

    def _named(self, name: str) -> str | None:
        if self._tool_actions is None:
            return None
        if callable(self._tool_actions):
            return self._tool_actions(name)
        found = self._tool_actions.get(name)
        if found is None and (key := _closest(name, self._keys())) is not None:
            self._warn(key, f"tool_actions names the tool {key!r}, and {name!r} was called; is one misspelt?")
        return found

    def _keys(self) -> set[str]:
        return set(self._tool_actions) if isinstance(self._tool_actions, Mapping) else set()

    def _warn(self, key: str, message: str) -> None:
        with self._lock:
            if key in self._warned:
                return
            self._warned.add(key)
        logger.warning("%s", message)

    def _default(self, call: ToolCall) -> str:
        tool: _Tool = (call.server, call.own_name or call.name)
        name, dotted = _visible(tool[1]), False
        if call.server is not None:
            action = f"{_server(call)}.{name}"
        elif call.function is not None and "." in name.strip("."):
            action, dotted = name, True
        else:
            action = f"tools.{name}"
        first = self._first(action, tool, dotted=dotted)
        if first != tool:
            raise ConfigurationError(
                f"the tools {first[1]!r} and {tool[1]!r} would both be the action {action!r}; "
                "name one of them in tool_actions"
            )
        return action

    def _first(self, action: str, tool: _Tool, *, dotted: bool) -> _Tool:
        """Return the first tool with this action, and remember it."""
        with self._lock:
            first = self._dotted.get(action) or self._others.get(action)
            if first is not None:
                if action in self._others:
                    self._others.move_to_end(action)
                return first
            # Whoever names a function so has written it; the others' names a model may make up, without end.
            (self._dotted if dotted else self._others)[action] = tool
            if len(self._others) > _MOST:
                self._others.popitem(last=False)
            return tool


def function_of(*functions: object) -> object:
    """Return the Python function of a tool that may have several, or None.

    One that is not guarded itself, if there is one: that one may be the one that is run.
    """
    found = [each for each in functions if each is not None]
    return next((each for each in found if not is_guarded(each)), found[0] if found else None)


def normalize_id(name: str | None) -> str | None:
    """A framework's id as the gateway takes it: one that is too long or odd is a digest of itself."""
    if not name or not name.strip():
        return None
    if len(name) <= _LONGEST and name.isprintable():
        return name
    return "sha256:" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def _closest(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is close to a misspelt one, or None."""
    plain = {_plain(each): each for each in sorted(names)}
    found = get_close_matches(_plain(name), plain, n=1, cutoff=_CLOSE if len(name) > _SHORT else _CLOSE_SHORT)
    return plain[found[0]] if found else None


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_")


def _server(call: ToolCall) -> str:
    if not call.server:
        raise ConfigurationError(
            f"the server of the tool {call.name!r} has no name here; give it one, or name the tool in tool_actions"
        )
    if call.server == "tools":
        raise ConfigurationError("a server may not be called 'tools'; configure it under another name")
    return _visible(call.server)


def _visible(name: str) -> str:
    """A name as part of an action identifier; no two names become the same one."""
    found = quote(name, safe=_KEPT)
    if len(found) <= _LONGEST // 2:
        return found
    return f"{found[:40]}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


#: A tool's server, and its own name there.
_Tool: TypeAlias = tuple[str | None, str]
# How alike a misspelt name is, of 1: one wrong letter of a short name weighs more. And how many tools an error lists.
_CLOSE: Final = 0.8
_CLOSE_SHORT: Final = 0.65
_SHORT: Final = 5
_LISTED: Final = 20
# Far more than any agent has tools.
_MOST: Final = 4096
_LONGEST: Final = 255
# Every visible character but the one that escapes, and the one that marks what was cut.
_KEPT: Final = "!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}"
