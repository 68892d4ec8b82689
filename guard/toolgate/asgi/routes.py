"""Which requests are guarded, and as which action."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from toolgate.asgi.answers import Refusal
from toolgate.errors import ConfigurationError

if TYPE_CHECKING:
    from toolgate._capture.deriving import AmountFrom
    from toolgate.asgi.types import Scope

__all__ = ["Actions", "Endpoint", "Found", "Routes"]

_EXAMPLE: Final = "'POST /refunds/{charge_id}?dry_run'"
_PLACE: Final = re.compile(r"\{([^{}]*)\}")
_KINDS: Final = {"": "[^/]+", "path": "(?s:.*)"}
# What one router takes for the path before it, and another for another one.
_UNSURE: Final = re.compile(r"[\x00-\x1f\x7f]|//|/\.\.?(/|\Z)")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A guarded endpoint; beside the action what `Guard.action` takes.

    Attributes:
        action: The action identifier.
        on_hold: `tell` answers 202 at once, `wait` waits for the person first; None is what the middleware does.
        hold_timeout: Seconds to wait; None is the middleware's.
        include: The only arguments that are shown.
        exclude: Arguments nobody is shown.
        redact: More names, and patterns, to hide wherever they occur.
        amount: The argument that is compared with `max_amount`, or a function that computes it.
    """

    action: str
    on_hold: Literal["tell", "wait"] | None = None
    hold_timeout: float | None = None
    include: Iterable[str] | None = None
    exclude: Iterable[str] = ()
    redact: Iterable[str | re.Pattern[str]] = ()
    amount: AmountFrom | None = None

    def __post_init__(self) -> None:
        # Read at each request: an iterator would hide something from the first one alone.
        for option in ("include", "exclude", "redact"):
            given = getattr(self, option)
            if given is not None and not isinstance(given, (str, re.Pattern)):
                object.__setattr__(self, option, tuple(given))


Actions: TypeAlias = "Mapping[str, str | Endpoint] | Callable[[Scope], str | Endpoint | None]"


@dataclass(frozen=True, slots=True)
class Found:
    """A request that is guarded.

    Attributes:
        endpoint: As what.
        path: The arguments that its path is made of.
        query: The names its query may have; None if it may have any.
    """

    endpoint: Endpoint
    path: dict[str, str]
    query: frozenset[str] | None


class _Pattern:
    def __init__(self, text: object, *, guarded: bool) -> None:
        said = text if isinstance(text, str) else ""
        self.method, _, place = said.partition(" ")
        path, asks, query = place.partition("?")
        self.query = frozenset(query.split("&")) if asks else frozenset[str]()
        literals, names = _PLACE.split(path)[::2], _PLACE.findall(path)
        bare, kinds = [name.partition(":")[0] for name in names], [name.partition(":")[2] for name in names]
        known = re.fullmatch("[A-Z]+", self.method) or (self.method == "*" and not guarded)
        right = known and path.startswith("/") and not re.search(r"[{}\s]", "".join(literals))
        arguments = [*bare, *self.query]
        if not right or not all(kind in _KINDS for kind in kinds) or (asks and not guarded):
            raise ConfigurationError(f"{text!r} names no request; write it like {_EXAMPLE}")
        if not all(name.isidentifier() and name.isascii() for name in bare) or "" in self.query:
            raise ConfigurationError(f"{text!r} has an argument without a name; write it like {_EXAMPLE}")
        if len(set(arguments)) != len(arguments):
            raise ConfigurationError(f"{text!r} names an argument twice; rename one")
        places = [f"(?P<{name}>{_KINDS[kind]})" for name, kind in zip(bare, kinds, strict=True)]
        self._regex = re.compile(
            "".join(re.escape(a) + b for a, b in zip(literals, [*places, ""], strict=True))
        )

    def takes(self, method: str) -> bool:
        # Frameworks answer HEAD by what answers GET: the tool runs.
        return self.method in {"*", method} or (self.method == "GET" and method == "HEAD")

    def match(self, path: str) -> dict[str, str] | None:
        found = self._regex.fullmatch(path)
        return None if found is None else found.groupdict()


class Routes:
    """What is guarded, and what passes.

    Args:
        actions: Endpoints by their patterns, the first that fits, or a function of the scope.
        unguarded: Patterns of what passes unasked; everything else is refused.

    Raises:
        ConfigurationError: A pattern or endpoint can be none.
    """

    def __init__(self, actions: Actions, unguarded: Iterable[str]) -> None:
        if not isinstance(actions, Mapping) and not callable(actions):
            raise ConfigurationError(
                f"actions is {actions!r}; pass a mapping of requests to actions, or a function"
            )
        if isinstance(unguarded, str) or not isinstance(unguarded, Iterable):
            raise ConfigurationError(f"unguarded is {unguarded!r}; pass a list, like ['GET /health']")
        self._named = None if isinstance(actions, Mapping) else actions
        self.patterns = [
            (_Pattern(text, guarded=True), _endpoint(action))
            for text, action in (actions.items() if isinstance(actions, Mapping) else ())
        ]
        self._unguarded = [_Pattern(text, guarded=False) for text in unguarded]

    def find(self, scope: Scope) -> Found | None:
        """The endpoint a request is for; None if it passes unasked.

        Raises:
            Refusal: Nothing names it, or it is a websocket to a guarded path.
        """
        path = _route_path(scope)
        if _UNSURE.search(path):
            raise Refusal(400, "the path has control characters, or segments that are empty or dots")
        # A websocket begins as a GET, and what is said over it is no request that could be asked about.
        is_socket = scope["type"] == "websocket"
        method: str = "GET" if is_socket else scope["method"]
        found = self._guarded(scope, method, path, any_method=is_socket)
        if found is not None and is_socket:
            raise Refusal(403, "a guarded path takes no websocket")
        if found is None and not any(
            each.takes(method) and each.match(path) is not None for each in self._unguarded
        ):
            raise Refusal(403, f"no action is named for {method} {path}", outcome="unnamed")
        return found

    def _guarded(self, scope: Scope, method: str, path: str, *, any_method: bool) -> Found | None:
        if self._named is not None:
            named = self._named(scope)
            # Nothing says what of the path is an argument: all of it is one.
            return None if named is None else Found(_endpoint(named), {"method": method, "path": path}, None)
        for pattern, endpoint in self.patterns:
            values = pattern.match(path) if any_method or pattern.takes(method) else None
            if values is not None:
                return Found(endpoint, values, pattern.query)
        return None


def _endpoint(named: object) -> Endpoint:
    if isinstance(named, Endpoint):
        return named
    if isinstance(named, str):
        return Endpoint(named)
    raise ConfigurationError(f"{named!r} is no action; use its name, or an Endpoint")


def _route_path(scope: Mapping[str, Any]) -> str:
    # As frameworks do it below a mount or a proxy's prefix.
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and (path + "/").startswith(root + "/") else path
