"""Tool calls of a framework, their actions, and the conversion of ids and names to a form that the gateway accepts."""

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
from toolgate._callables import hides_or_derives
from toolgate_integrations._arguments import Received

__all__ = ["ToolActions", "ToolCall", "ToolNames", "function_of", "normalize_id"]

logger = logging.getLogger("toolgate")

#: Actions by tool name, or a function that returns the action for a tool name. A tool that is missing from the
#: mapping, or for which the function returns None, has its default action.
ToolActions: TypeAlias = Mapping[str, str] | Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool by an agent framework.

    Attributes:
        name: The tool's name.
        arguments: Arguments that the tool's function receives, by name; the check contains them.
        call_id: The framework's id of this call; it stays the same if the framework executes the call again.
        run_id: The framework's id of the run or session that makes the call; it stays the same after a pause.
        agent: Name of the framework agent that makes the call.
        function: The Python function of the tool; None if the tool is not defined in this process.
        server: Configured name of the remote tool's server; empty if the server has no name, None for a local tool.
        own_name: The tool's name on its server; None if the framework uses the same name.
        received: The validated arguments; None if the tool receives `arguments` unchanged.
        action: The action of the call; None to derive it from the tool.
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
    action: str | None = None

    def to_send(self, approved: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments to pass to the framework, so that the tool receives exactly the approved values.

        Raises:
            ConfigurationError: The tool's validation converts the approved values to other values.
        """
        return dict(approved) if self.received is None else self.received.to_send(approved)


class ToolNames:
    """Mapping of tool names to actions, which detects two tools that would have the same default action.

    Args:
        tool_actions: Actions by tool name; tools without an entry have their default action.

    Raises:
        ConfigurationError: `tool_actions` is neither a mapping nor a function.
    """

    def __init__(self, tool_actions: ToolActions | None = None) -> None:
        if tool_actions is not None and not callable(tool_actions) and not isinstance(tool_actions, Mapping):
            raise ConfigurationError(
                f"tool_actions is {tool_actions!r}; pass a mapping from tool names to actions, or a function"
            )
        self._tool_actions = tool_actions
        self._dotted: dict[str, _Tool] = {}
        self._others: OrderedDict[str, _Tool] = OrderedDict()
        self._lock = threading.Lock()
        #: Keys of `tool_actions` for which a warning was already logged.
        self._warned: set[str] = set()

    def verify(self, tools: Iterable[str], *, is_complete: bool = True) -> None:
        """Compare the keys of `tool_actions` with the names of an agent's tools.

        A key that matches no tool causes only a warning, logged once, because several agents may share the mapping.

        Args:
            tools: Names of the agent's tools.
            is_complete: True if the agent has no other tools. If it is False, no warning is logged.

        Raises:
            ConfigurationError: A key matches no tool, and is probably a misspelt name of a tool that has no key.
        """
        known = sorted(set(tools))
        for key in self._keys() - set(known):
            meant = _closest(key, set(known) - self._keys())
            if meant is not None:
                listed = ", ".join(map(repr, known[:_LISTED])) + (", …" if len(known) > _LISTED else "")
                raise ConfigurationError(
                    f"tool_actions contains the tool {key!r}, which does not exist; did you mean {meant!r}? "
                    f"The tools are {listed}"
                )
            if is_complete:
                self._warn(
                    key,
                    f"tool_actions contains the tool {key!r}, which this agent does not have; correct or "
                    "remove the name",
                )

    def action_of(self, call: ToolCall) -> str:
        """Return the action of a tool call, which the gateway's rules refer to.

        It is the action of the call, or else the action of the tool's guarded function, or else the entry of
        `tool_actions`, or else the tool's default action.

        Raises:
            ConfigurationError: Two tools have the same default action, the server's name is empty or reserved, or the
                tool's function wraps a guarded function with options that the check of the wrapper could not apply.
        """
        if call.action is not None:
            return call.action
        if not is_guarded(call.function) and hides_or_derives(call.function):
            # The check would contain the wrapper's arguments. It would send values that `@guarded` is configured to
            # hide, and lack values that `@guarded` computes from the arguments, so the call is refused.
            raise ConfigurationError(
                f"the tool {call.name!r} wraps a guarded function with options for its arguments, which "
                "would not apply to the wrapper's arguments; decorate the wrapper with @guarded, or pass "
                "the guarded function itself as the tool"
            )
        return guarded_action(call.function) or self._named(call.name) or self._default(call)

    def _named(self, name: str) -> str | None:
        if self._tool_actions is None:
            return None
        if callable(self._tool_actions):
            return self._tool_actions(name)
        found = self._tool_actions.get(name)
        if found is None and (key := _closest(name, self._keys())) is not None:
            self._warn(
                key,
                f"tool_actions contains the tool {key!r}, but the called tool is {name!r}; correct the name "
                "in tool_actions",
            )
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
                f"the tools {first[1]!r} and {tool[1]!r} would have the same action {action!r}; set a "
                "different action for one of them in tool_actions"
            )
        return action

    def _first(self, action: str, tool: _Tool, *, dotted: bool) -> _Tool:
        """Return the first tool that was seen with this default action; if there was none, store and return `tool`."""
        with self._lock:
            first = self._dotted.get(action) or self._others.get(action)
            if first is not None:
                if action in self._others:
                    self._others.move_to_end(action)
                return first
            # Names with a dot come from functions of the program, so their number is limited. A model may invent any
            # number of other names, so only the newest of the other names are kept.
            (self._dotted if dotted else self._others)[action] = tool
            if len(self._others) > _MOST:
                self._others.popitem(last=False)
            return tool


def function_of(*functions: object) -> object:
    """Return one of a tool's Python functions, such as its synchronous and asynchronous one; None if all are None.

    An unguarded function is preferred: if the framework runs it, only the plugin checks the call.
    """
    found = [each for each in functions if each is not None]
    return next((each for each in found if not is_guarded(each)), found[0] if found else None)


def normalize_id(name: str | None) -> str | None:
    """Return a framework's id in a form that the gateway accepts, or None for an empty id.

    An id that is longer than 255 characters or contains unprintable characters is replaced by its SHA-256 digest.
    """
    if not name or not name.strip():
        return None
    if len(name) <= _LONGEST and name.isprintable():
        return name
    return "sha256:" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def _closest(name: str, names: Iterable[str]) -> str | None:
    """Return the element of `names` that is most similar to `name`, or None if no element is similar enough."""
    plain = {_plain(each): each for each in sorted(names)}
    found = get_close_matches(_plain(name), plain, n=1, cutoff=_CLOSE if len(name) > _SHORT else _CLOSE_SHORT)
    return plain[found[0]] if found else None


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_")


def _server(call: ToolCall) -> str:
    if not call.server:
        raise ConfigurationError(
            f"the server of the tool {call.name!r} has no name, which the tool's action must contain; give the server "
            "a name, or set the tool's action in tool_actions"
        )
    if call.server == "tools":
        raise ConfigurationError(
            "a server cannot have the name 'tools', which Toolgate reserves; configure the server under "
            "another name"
        )
    return _visible(call.server)


def _visible(name: str) -> str:
    """Return a name in a form that an action may contain; two different names never get the same form."""
    found = quote(name, safe=_KEPT)
    if len(found) <= _LONGEST // 2:
        return found
    return f"{found[:40]}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


#: A pair that identifies a tool: name of its server (None for a local tool), and the tool's name on that server.
_Tool: TypeAlias = tuple[str | None, str]
# Minimum similarity, from 0 to 1, of a misspelt name to the correct one. It is lower for short names, in which one
# wrong character makes a larger difference.
_CLOSE: Final = 0.8
_CLOSE_SHORT: Final = 0.65
_SHORT: Final = 5
# Maximum number of tool names in an error message.
_LISTED: Final = 20
# Maximum number of remembered tool names; agents have far fewer tools.
_MOST: Final = 4096
_LONGEST: Final = 255
# Characters of names that are not escaped: all visible ASCII characters except "%", which begins an escape sequence,
# and "~", which separates a shortened name from its digest.
_KEPT: Final = "!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}"
