"""Matching of HTTP requests to operations of an OpenAPI document.

A path that a server could interpret in another way than this module matches no operation, so the request is not sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote

from toolgate import ConfigurationError
from toolgate_integrations.openapi.document import Operation, Origin, origin_of, split

__all__ = ["Found", "Routes"]

_PARAMETER: Final = re.compile(r"\{([^{}/]+)\}")
_WHOLE: Final = 1_000_000
#: The positions of those segments of a path template that contain no parameters.
_Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Segment:
    template: str
    pattern: re.Pattern[str]
    loose: re.Pattern[str]
    names: tuple[str, ...]
    #: Number of literal characters. If two templates match a path, the one with more literal characters is chosen.
    weight: int


@dataclass(frozen=True, slots=True)
class _Route:
    operation: Operation
    path: str
    segments: tuple[_Segment, ...]

    def matches_parameters(self, segments: tuple[str, ...]) -> bool:
        """Return whether a path matches the segments with parameters; the other segments were compared before."""
        return all(
            not ours.names or ours.loose.fullmatch(theirs)
            for ours, theirs in zip(self.segments, segments, strict=True)
        )

    def beats(self, other: _Route) -> bool:
        weights = [(a.weight, b.weight) for a, b in zip(self.segments, other.segments, strict=True)]
        return all(ours >= theirs for ours, theirs in weights) and any(
            ours > theirs for ours, theirs in weights
        )


@dataclass(frozen=True, slots=True)
class Found:
    """The operation that a request matches.

    Attributes:
        operation: The operation.
        values: Decoded path parameters of the request, by name.
    """

    operation: Operation
    values: Mapping[str, str]
    _route: _Route

    def path_with(self, values: Mapping[str, str]) -> str:
        """Return the operation's encoded path with new values of its path parameters.

        Args:
            values: Values of all path parameters, by name.
        """
        return "".join(
            "/" + _PARAMETER.sub(lambda found: quote(values[found[1]], safe=""), each.template)
            for each in self._route.segments
        )


class Routes:
    """Index of a document's operations, in which the operation of a request is looked up.

    Args:
        operations: The operations.

    Raises:
        ConfigurationError: A path contains the same parameter twice.
    """

    def __init__(self, operations: Iterable[Operation]) -> None:
        # To find a route quickly, the routes are indexed by the positions of their literal segments, and then by the
        # text of these segments. A large API has hundreds of paths with the same number of segments, but only a few
        # combinations of such positions.
        self._routes: dict[tuple[Origin, str, int], dict[_Shape, dict[tuple[str, ...], list[_Route]]]] = {}
        self._origins: set[Origin] = set()
        for operation in operations:
            for server in dict.fromkeys(operation.servers):
                origin, base = split(server)
                route = _route(operation, base + operation.path)
                self._origins.add(origin)
                shape = tuple(at for at, each in enumerate(route.segments) if not each.names)
                written = tuple(unquote(route.segments[at].template).casefold() for at in shape)
                alike = self._routes.setdefault((origin, operation.method, len(route.segments)), {})
                alike.setdefault(shape, {}).setdefault(written, []).append(route)

    def find(self, request: Any) -> Found | str:
        """Return the operation that a request matches, or the reason why it matches none.

        Args:
            request: Request object of the HTTP library.
        """
        origin = origin_of(request.url)
        if origin is None or origin not in self._origins:
            return "the address of the request does not belong to a server of the document"
        segments = _segments(request.url.raw_path.partition(b"?")[0].decode("ascii", "replace"))
        if segments is None:
            return "the path of the request has dots, slashes, semicolons or bytes that servers read in several ways"
        fitting = self._fitting(origin, request.method, segments)
        if not fitting:
            return "the document has no operation with this method and path"
        best = next((one for one in fitting if all(one is each or one.beats(each) for each in fitting)), None)
        if best is None:
            return f"{fitting[0].path!r} and {fitting[1].path!r} both match the path of the request"
        values: dict[str, str] = {}
        for ours, theirs in zip(best.segments, segments, strict=True):
            exact = ours.pattern.fullmatch(theirs)
            if exact is None:
                return f"the path of the request is not spelled exactly like {best.path!r}"
            values.update(zip(ours.names, exact.groups(), strict=True))
        return Found(best.operation, values, best)

    def _fitting(self, origin: Origin, method: str, segments: tuple[str, ...]) -> list[_Route]:
        """Return the routes that match a path; letter case is ignored."""
        folded = [each.casefold() for each in segments]
        return [
            route
            for shape, alike in self._routes.get((origin, method, len(segments)), {}).items()
            for route in alike.get(tuple(folded[at] for at in shape), ())
            if route.matches_parameters(segments)
        ]


def _route(operation: Operation, path: str) -> _Route:
    segments = tuple(_segment(each) for each in path[1:].split("/"))
    names = [name for each in segments for name in each.names]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"the path {operation.path!r} names a parameter twice; name each once")
    return _Route(operation, path, segments)


# The result is cached, because compiling patterns is slow, and the thousand paths of a large API contain only a few
# hundred different segments.
@lru_cache(maxsize=4096)
def _segment(template: str) -> _Segment:
    parts = _PARAMETER.split(template)
    literals, names = [unquote(each) for each in parts[::2]], tuple(parts[1::2])
    pattern = "(.+?)".join(re.escape(each) for each in literals)
    weight = sum(map(len, literals)) if names else _WHOLE
    flags = re.DOTALL
    return _Segment(
        template, re.compile(pattern, flags), re.compile(pattern, flags | re.IGNORECASE), names, weight
    )


def _segments(path: str) -> tuple[str, ...] | None:
    """Return the decoded segments of a path, or None if servers could interpret the path in different ways."""
    if not path.startswith("/"):
        return None
    found = []
    for piece in path[1:].split("/"):
        try:
            text = unquote(piece, errors="strict")
        except UnicodeDecodeError:
            return None
        # Some servers decode the path before they split it at slashes and resolve dots, and some remove the text
        # after a semicolon.
        if (
            text in {".", ".."}
            or ";" in piece
            or any(char in "/\\" or not " " <= char != "\x7f" for char in text)
        ):
            return None
        found.append(text)
    return tuple(found)
