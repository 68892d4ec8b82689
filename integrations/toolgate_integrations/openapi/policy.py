"""Checks of requests, for synchronous and asynchronous transports."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from re import Pattern
from typing import Any, Final
from urllib.parse import urlencode

from toolgate import ConfigurationError, Guard, default_guard
from toolgate._action import Action
from toolgate._call import OnHold
from toolgate._capture.jsontext import dumps, exact
from toolgate._capture.rules import AmountFrom, Rules
from toolgate._options import make_options
from toolgate_integrations._naming import ToolNames
from toolgate_integrations.base import ToolActions, ToolCall
from toolgate_integrations.openapi.defaults import SeveralPlacesError
from toolgate_integrations.openapi.document import Document, Operation, credentials, load, operations
from toolgate_integrations.openapi.matching import Found, Routes
from toolgate_integrations.openapi.requests import Arguments, Place, Reading, address, told

__all__ = ["REFUSE", "Asked", "Road"]


def edited(
    request: Any,
    arguments: Arguments,
    found: Found | None,
    approved: Mapping[str, Any],
    reread: Callable[[Any, bytes], Arguments | None],
) -> Any:
    """The request with the arguments that were approved: the very same where none was changed.

    Args:
        request: The HTTP library's.
        arguments: What it asked for.
        found: The operation it is.
        approved: The arguments as they were approved.
        reread: Reads the arguments of a request of this operation; None if it is of another one.

    Raises:
        ConfigurationError: The change cannot be written into the request; it is not sent.
    """
    # Whoever edits puts new values in the place of the old ones; what stayed is the very object that was read.
    changed = [name for name, value in arguments.context.items() if approved.get(name) is not value]
    if not changed:
        return request
    try:
        changes: dict[Place, dict[str, Any]] = {}
        for name in changed:
            place, own_name = arguments.places[name]
            changes.setdefault(place, {})[own_name] = approved[name]
        body = _body(arguments, changes.get("body", {}))
        rebuilt = _request(request, arguments, found, changes, body)
        again = reread(rebuilt, rebuilt.content)
        if again is not None and _is_same(
            again.context, {name: approved[name] for name in arguments.context}
        ):
            return rebuilt
    except (AttributeError, KeyError, TypeError, ValueError, ConfigurationError):
        # What cannot be written is told below, without the values.
        pass
    raise ConfigurationError(
        f"{told(request)} was approved with another {changed[0]!r}, which cannot be written into it; it was not sent"
    ) from None


def _request(
    request: Any,
    arguments: Arguments,
    found: Found | None,
    changes: Mapping[Place, Mapping[str, Any]],
    body: bytes | None,
) -> Any:
    raw_path, _, query = request.url.raw_path.partition(b"?")
    if path := changes.get("path"):
        if found is None:
            raise ValueError
        raw_path = found.path_with({**found.values, **_texts(path)}).encode("ascii")
    if more := changes.get("query"):
        query = urlencode(_with(arguments.query, more)).encode("ascii")
    headers = request.headers.copy()
    for name, value in changes.get("header", {}).items():
        headers[name] = value
    # It is sent in one piece, whose length the library says.
    for name in ("content-length", "transfer-encoding"):
        headers.pop(name, None)
    if body is None:
        body = b"".join(request.stream)
    url = request.url.copy_with(raw_path=raw_path + b"?" + query if query else raw_path)
    return type(request)(request.method, url, headers=headers, content=body, extensions=request.extensions)


def _body(arguments: Arguments, changes: Mapping[str, Any]) -> bytes | None:
    if not changes:
        return None
    said = arguments.body
    if said.kind == "members":
        return dumps({**said.value, **changes}).encode()
    if said.kind == "json":
        return dumps(changes["body"]).encode()
    if said.kind == "form":
        return urlencode(_with(said.value, changes)).encode("ascii")
    raise ValueError


def _with(pairs: list[tuple[str, str]], changes: Mapping[str, Any]) -> list[tuple[str, str]]:
    written: list[tuple[str, str]] = []
    done: set[str] = set()
    for name, value in pairs:
        if name not in changes:
            written.append((name, value))
        elif name not in done:
            done.add(name)
            values = changes[name] if isinstance(changes[name], list) else [changes[name]]
            written.extend((name, str(each)) for each in values)
    # An approver edited what the request left to its default.
    written.extend((name, str(value)) for name, value in changes.items() if name not in done)
    return written


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def _is_same(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    return ours.keys() == theirs.keys() and all(_equal(ours[name], theirs[name]) for name in ours)


def _equal(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, bytes) or isinstance(theirs, bytes):
        return bool(ours == theirs)
    # In queries and forms a list of one is its only value.
    return exact(theirs) in (exact(ours), exact([ours]))


REFUSE: Final = "refuse"
# By these a request asks to be taken for another one.
_DISGUISES: Final = (
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
)
# So says an argument that a POST is another method, to frameworks for forms of browsers.
_RENAMES: Final = "_method"
_RENAMES_PART: Final = re.compile(rb"name=\"?_method\b", re.IGNORECASE)
_ELSEWHERE: Final = frozenset({"target", "sni_hostname"})
_SECRETS: Final = frozenset({"authorization", "proxy-authorization", "cookie"})


@dataclass(frozen=True, slots=True)
class Asked:
    """A request with its action and arguments.

    Attributes:
        request: The request.
        action: Its action.
        arguments: What it asks for.
        found: The operation it is; None for one that is not in the document.
        amount: What is compared with `max_amount`.
    """

    request: Any
    action: str
    arguments: Arguments
    found: Found | None
    amount: AmountFrom | None


class Road:
    """The operations of one API, with the options of their checks.

    Args:
        document: The API's OpenAPI document.
        prefix: What all of its actions begin with.
        guard: The guard that asks; None is the environment's.
        servers: Addresses in place of the document's.
        unknown: What becomes of what is not in the document.
        actions: Actions of operations by their names.
        amounts: What is compared with `max_amount`, by action.
        headers: Headers that are arguments.
        redact: What is hidden, as for `guarded`.
        on_hold: What a held request does, as for `guarded`.
        hold_timeout: Seconds to wait for the person.
        max_body: The longest body that is read, in bytes.

    Attributes:
        actions: Of all operations, by their names in the document.
        max_body: as given.

    Raises:
        ConfigurationError: An argument is wrong, or the document is.
    """

    def __init__(
        self,
        document: Document,
        *,
        prefix: str,
        guard: Guard | None,
        servers: Sequence[str] | None,
        unknown: str,
        actions: ToolActions | None,
        amounts: Mapping[str, AmountFrom] | None,
        headers: Iterable[str],
        redact: Iterable[str | Pattern[str]],
        on_hold: OnHold,
        hold_timeout: float | None,
        max_body: int,
    ) -> None:
        if guard is not None and not isinstance(guard, Guard):
            raise ConfigurationError(
                f"guard is {guard!r}; pass a toolgate.Guard, or None for the environment's"
            )
        if not _is_size(max_body):
            raise ConfigurationError(f"max_body is {max_body!r}; use a number of bytes")
        if isinstance(servers, str):
            raise ConfigurationError(f"servers is {servers!r}; pass a list of addresses")
        loaded = load(document)
        found = list(operations(loaded, servers))
        self.actions = _actions(found, prefix, actions)
        self.max_body = max_body
        self._guard = guard
        self._routes = Routes(found)
        self._unknown = None if unknown == REFUSE else unknown
        self._amounts = dict(amounts or {})
        self._holding: dict[str, Any] = {"on_hold": on_hold, "hold_timeout": hold_timeout}
        # A single text is refused below, and not taken for its letters.
        self._redact = redact if isinstance(redact, (str, Pattern)) else tuple(redact)
        arguments = _headers(headers, credentials(loaded, "header"))
        self._reading = Reading(credentials(loaded, "query"), arguments)
        self._header_names = arguments
        known = dict.fromkeys([*self.actions.values(), *([] if self._unknown is None else [self._unknown])])
        for action in self._amounts.keys() - known.keys():
            raise ConfigurationError(f"amounts names {action!r}, which is no action of the document")
        for action in known:
            rules = Rules(redact=self._redact, amount=self._amounts.get(action))
            make_options(action, rules, **self._holding, agent_id=None)

    def asked(self, request: Any, body: bytes) -> Asked:
        """Return the action and the arguments of a request.

        Args:
            request: The HTTP library's.
            body: Its body.

        Raises:
            ConfigurationError: It is no operation of the document, or may be taken for another.
        """
        _refuse_disguised(request)
        found = self._routes.find(request)
        if isinstance(found, Found):
            action = self.actions[found.operation.name]
            arguments = self._arguments(request, body, found, action)
            _refuse_renamed(request, arguments)
            return Asked(request, action, arguments, found, self._amounts.get(action))
        if self._unknown is None:
            raise ConfigurationError(
                f"{told(request)} is no operation of the OpenAPI document: {found}; it was not sent. Add it to the "
                "document, or give what is not in it an action by unknown="
            )
        arguments = self._arguments(request, body, None, self._unknown)
        _refuse_renamed(request, arguments)
        return Asked(request, self._unknown, arguments, None, self._amounts.get(self._unknown))

    def block(self, asked: Asked) -> Action:
        """The guarded block in which a request is sent.

        Args:
            asked: The request.
        """
        guard = default_guard() if self._guard is None else self._guard
        return guard.action(
            asked.action,
            asked.arguments.context,
            **self._holding,
            redact=self._redact,
            amount=asked.amount,
            edits=True,
        )

    def approved(self, asked: Asked, context: Mapping[str, Any]) -> Any:
        """The request as it may be sent.

        Args:
            asked: The request.
            context: Its arguments, as they were approved.

        Raises:
            ConfigurationError: What a person changed cannot be written into it.
        """

        def reread(request: Any, body: bytes) -> Arguments | None:
            found = self._routes.find(request)
            if isinstance(found, str):
                return None if asked.found else self._arguments(request, body, None, asked.action)
            same = asked.found is not None and found.operation == asked.found.operation
            return self._arguments(request, body, found, asked.action) if same else None

        return edited(asked.request, asked.arguments, asked.found, context, reread)

    def _arguments(self, request: Any, body: bytes, found: Found | None, action: str) -> Arguments:
        whole = {"method": request.method, "url": address(request)}
        path = whole if found is None else found.values
        amount = self._amounts.get(action)
        amounts = frozenset((amount,)) if isinstance(amount, str) else frozenset[str]()
        arguments = self._reading.of(request, body, path, amounts)
        if found is None:
            return arguments
        try:
            return found.operation.defaults.fill(arguments, self._header_names, amounts | {"amount"})
        except SeveralPlacesError as error:
            raise ConfigurationError(
                f"{told(request)} has {error.name!r}, which has a default in another place of the request, and only one "
                "of them can be compared; it was not sent: send it in that place"
            ) from None


def _actions(found: Iterable[Operation], prefix: object, actions: ToolActions | None) -> dict[str, str]:
    if not isinstance(prefix, str) or not prefix.rstrip("."):
        raise ConfigurationError(f"prefix is {prefix!r}; use what the actions begin with, such as 'stripe'")
    names = ToolNames(actions)
    given: dict[str, str] = {}
    owners: dict[str, Operation] = {}
    for operation in found:
        action = names.action_of(ToolCall(operation.name, {}, server=prefix.rstrip(".")))
        other = owners.setdefault(action, operation)
        if other is not operation:
            raise ConfigurationError(
                f"{other.method} {other.path!r} and {operation.method} {operation.path!r} would both be the action "
                f"{action!r}; name one of them otherwise in the document, or in actions"
            )
        given[operation.name] = action
    return given


def _headers(headers: Iterable[object], credentials: frozenset[str]) -> tuple[str, ...]:
    if isinstance(headers, str):
        raise ConfigurationError(f"headers is {headers!r}; pass a collection of names")
    found: list[str] = []
    secret = _SECRETS | {each.lower() for each in credentials}
    for name in headers:
        if not isinstance(name, str) or name.lower() in secret:
            raise ConfigurationError(
                f"headers names {name!r}, which is a credential and no argument; leave it out"
            )
        found.append(name)
    return tuple(found)


def _is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= 0


def _refuse_disguised(request: Any) -> None:
    """Refuse what would arrive as something else than it looks like here."""
    for name in _DISGUISES:
        if name in request.headers:
            raise ConfigurationError(
                f"{told(request)} has the header {name!r}, by which an API may take it for another request; it was "
                "not sent: leave the header out"
            )
    host = request.headers.get("host", "").encode("utf-8", "replace").lower()
    if host != request.url.netloc.lower() or _ELSEWHERE & request.extensions.keys():
        raise ConfigurationError(
            f"{told(request)} would arrive at another host or path than its address says; it was not sent: leave the "
            "header 'Host' and the extensions 'target' and 'sni_hostname' to the HTTP library"
        )


def _refuse_renamed(request: Any, arguments: Arguments) -> None:
    """Refuse a POST that an API may take for a DELETE."""
    if request.method != "POST":
        return
    body = arguments.body
    named = [name for name, _ in arguments.query]
    if body.kind in ("members", "form"):
        named += body.value if body.kind == "members" else [name for name, _ in body.value]
    if _RENAMES in named or (body.kind == "bytes" and _RENAMES_PART.search(body.value)):
        raise ConfigurationError(
            f"{told(request)} has the argument {_RENAMES!r}, by which an API may take it for another request; it was "
            "not sent: leave it out"
        )
