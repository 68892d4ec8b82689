"""Where CrewAI looks a tool's function up, and what stands there while calls of the tool are let through."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from crewai.tools import BaseTool
from crewai.tools.base_tool import Tool
from crewai.tools.structured_tool import CrewStructuredTool

from toolgate_integrations._arguments import ArgumentSchema, ModelSchema, RawSchema

__all__ = ["function_of", "schema_of", "watched"]

#: makes of a function what stands in its place
Instead: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


def function_of(tool: CrewStructuredTool | None) -> object:
    """The Python function of a tool, as its author wrote it; None if nobody knows."""
    found = None
    for owner, name in _places(tool):
        found = getattr(owner, name)
    while hasattr(found, _BODY):
        found = getattr(found, _BODY)
    return found


def schema_of(tool: CrewStructuredTool | None) -> ArgumentSchema:
    """Return the schema by which the framework validates the calls of a tool."""
    model = getattr(tool, "args_schema", None)
    return RawSchema() if model is None else ModelSchema(model, function_of(tool), ("self", "config"))


def watched(tool: CrewStructuredTool | None, watching: Instead, *, cached: bool) -> Callable[[], None]:
    """Watch a tool's function, in whatever way the framework is going to look it up.

    Args:
        tool: The tool.
        watching: What stands in the function's place.
        cached: Whether its result may be kept in the framework's cache.

    Returns:
        Leaves the tool as it was; to be called once.
    """
    places = [(*place, watching) for place in _places(tool)]
    if tool is not None and not cached:
        places.append((getattr(tool, "_original_tool", None) or tool, "cache_function", _never))
    with _lock:
        for owner, name, instead in places:
            _watch(owner, name, instead)

    def leave() -> None:
        with _lock:
            for owner, name, _ in places:
                _leave(owner, name)

    return leave


def _places(tool: CrewStructuredTool | None) -> Iterator[tuple[Any, str]]:
    original: BaseTool | None = getattr(tool, "_original_tool", None)
    if isinstance(original, Tool):
        yield original, "func"
        return
    if tool is not None:
        yield tool, "func"
    if original is not None:
        yield original, "_run"


def _watch(owner: Any, name: str, instead: Instead) -> None:
    place = id(owner), name
    if place not in _watched:
        body = getattr(owner, name)
        new = instead(body)
        setattr(new, _BODY, body)
        _watched[place] = _Watched(owner, vars(owner).get(name, _NONE))
        # Past pydantic, which would take the name of a method for a field that is not there.
        object.__setattr__(owner, name, new)
    _watched[place].calls += 1


def _leave(owner: Any, name: str) -> None:
    here = _watched[id(owner), name]
    here.calls -= 1
    if here.calls == 0:
        del _watched[id(owner), name]
        if here.own is _NONE:
            object.__delattr__(owner, name)
        else:
            object.__setattr__(owner, name, here.own)


def _never(_: Callable[..., Any]) -> Callable[..., bool]:
    return lambda *_: False


@dataclass
class _Watched:
    owner: object
    own: object
    calls: int = 0


#: by which what stands in a function's place bears it
_BODY: Final = "_toolgate_body"
_NONE: Final = object()
#: the functions that are watched, by whose they are and how they are called
_watched: Final[dict[tuple[int, str], _Watched]] = {}
# Calls of one tool begin and end in many threads.
_lock = threading.Lock()
