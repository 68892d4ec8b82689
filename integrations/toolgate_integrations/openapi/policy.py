"""Checking of HTTP requests; used by both the synchronous and the asynchronous transport."""

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

__all__ = ["REFUSE", "Asked", "TransportBase"]


def edited(
    request: Any,
    arguments: Arguments,
    found: Found | None,
    approved: Mapping[str, Any],
    reread: Callable[[Any, bytes], Arguments | None],
) -> Any:
    """Return a request with the approved arguments; if the approver edited none, it is the same request object.

    Args:
        request: Request object of the HTTP library.
        arguments: Arguments of the request.
        found: Operation of the request; None for a request that matches no operation.
        approved: The approved arguments.
        reread: Function that parses the arguments of the changed request, to verify them. It returns None if the
            changed request matches another operation.

    Raises:
        ConfigurationError: An approver's edit cannot be written into the request; the request is not sent.
    """
    # The arguments are compared by identity, because an argument that was not edited is still the object that was
    # parsed from the request.
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
        # The exception is dropped because its message may contain the values of the arguments.
        pass
    raise ConfigurationError(
        f"{told(request)} was approved with a changed {changed[0]!r}, but the new value cannot be written "
        "into the request; the request was not sent"
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
    # The headers about the body's length are removed, because the library sets them for the new body.
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
    # The remaining arguments are not in the request: the check added their default values, and an approver edited
    # these.
    written.extend((name, str(value)) for name, value in changes.items() if name not in done)
    return written


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def _is_same(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    return ours.keys() == theirs.keys() and all(_equal(ours[name], theirs[name]) for name in ours)


def _equal(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, bytes) or isinstance(theirs, bytes):
        return bool(ours == theirs)
    # Queries and forms do not distinguish a list with one value from the value itself, so both are treated as equal.
    return exact(theirs) in (exact(ours), exact([ours]))


REFUSE: Final = "refuse"
_MAX_BODY: Final = 1024 * 1024
# Headers that make some servers handle a request as if it had another method or path.
_DISGUISES: Final = (
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
)
# Name of the form field that makes some web frameworks handle a POST request as if it had another method.
_RENAMES: Final = "_method"
_RENAMES_PART: Final = re.compile(rb"name=\"?_method\b", re.IGNORECASE)
_ELSEWHERE: Final = frozenset({"target", "sni_hostname"})
_SECRETS: Final = frozenset({"authorization", "proxy-authorization", "cookie"})


@dataclass(frozen=True, slots=True)
class Asked:
    """A request with the action and the arguments that the gateway checks.

    Attributes:
        request: Request object of the HTTP library.
        action: Action of the request.
        arguments: Arguments of the request.
        found: Operation of the request; None for a request that matches no operation.
        amount: Value that the gateway compares with a rule's limit `max_amount`: the name of an argument or a
            function.
    """

    request: Any
    action: str
    arguments: Arguments
    found: Found | None
    amount: AmountFrom | None


class TransportBase:
    """Base class of both guarded transports, with the operations of one API and the options for the checks.

    The arguments are described in `GuardTransport`.
    """

    # Name of the method with which the wrapped transport sends a request, and an example of such a transport.
    _sends = ""
    _example = ""

    def __init__(
        self,
        transport: Any,
        document: Document,
        *,
        prefix: str,
        guard: Guard | None = None,
        servers: Sequence[str] | None = None,
        unknown: str = REFUSE,
        actions: ToolActions | None = None,
        amounts: Mapping[str, AmountFrom] | None = None,
        headers: Iterable[str] = (),
        redact: Iterable[str | Pattern[str]] = (),
        on_hold: OnHold = "raise",
        hold_timeout: float | None = None,
        max_body: int = _MAX_BODY,
    ) -> None:
        if not callable(getattr(transport, self._sends, None)):
            raise ConfigurationError(
                f"transport is {transport!r}, which has no {self._sends}; pass the transport that sends the "
                "requests, such as "
                f"{self._example}"
            )
        if guard is not None and not isinstance(guard, Guard):
            raise ConfigurationError(
                f"guard is {guard!r}; pass a toolgate.Guard, or None for the environment's"
            )
        if not _is_size(max_body):
            raise ConfigurationError(f"max_body is {max_body!r}; use a number of bytes")
        if isinstance(servers, str):
            raise ConfigurationError(
                f"servers is {servers!r}; pass a list of the API's addresses, such as ['https://api.example.com']"
            )
        loaded = load(document)
        found = list(operations(loaded, servers))
        self._transport = transport
        self._actions = _actions(found, prefix, actions)
        self._max_body = max_body
        self._guard = guard
        self._routes = Routes(found)
        self._unknown = None if unknown == REFUSE else unknown
        self._amounts = dict(amounts or {})
        self._holding: dict[str, Any] = {"on_hold": on_hold, "hold_timeout": hold_timeout}
        # A single string is not converted to a tuple, which would contain its characters. It stays a string, which
        # `Rules` rejects below.
        self._redact = redact if isinstance(redact, (str, Pattern)) else tuple(redact)
        arguments = _headers(headers, credentials(loaded, "header"))
        self._reading = Reading(credentials(loaded, "query"), arguments)
        self._header_names = arguments
        known = dict.fromkeys([*self._actions.values(), *([] if self._unknown is None else [self._unknown])])
        for action in self._amounts.keys() - known.keys():
            raise ConfigurationError(
                f"amounts names {action!r}, which is not the action of an operation in the document"
            )
        for action in known:
            rules = Rules(redact=self._redact, amount=self._amounts.get(action))
            make_options(action, rules, **self._holding, agent_id=None)

    @property
    def actions(self) -> Mapping[str, str]:
        """Actions by `operationId`, or by `GET:/path/{template}` for operations without an id."""
        return dict(self._actions)

    def _asked(self, request: Any, body: bytes) -> Asked:
        """Return the request with the action and the arguments that the gateway checks.

        Args:
            request: Request object of the HTTP library.
            body: Body of the request.

        Raises:
            ConfigurationError: The request matches no operation of the document, or an API could handle it as another
                request.
        """
        _refuse_disguised(request)
        found = self._routes.find(request)
        if isinstance(found, Found):
            action = self._actions[found.operation.name]
            arguments = self._arguments(request, body, found, action)
            _refuse_renamed(request, arguments)
            return Asked(request, action, arguments, found, self._amounts.get(action))
        if self._unknown is None:
            raise ConfigurationError(
                f"{told(request)} is not an operation of the OpenAPI document: {found}; the request was not sent. "
                "Add the operation to the document, or set an action for unknown requests with unknown="
            )
        arguments = self._arguments(request, body, None, self._unknown)
        _refuse_renamed(request, arguments)
        return Asked(request, self._unknown, arguments, None, self._amounts.get(self._unknown))

    def _block(self, asked: Asked) -> Action:
        """Return the action block in which the request is checked, sent and logged."""
        guard = default_guard() if self._guard is None else self._guard
        return guard.action(
            asked.action,
            asked.arguments.context,
            **self._holding,
            redact=self._redact,
            amount=asked.amount,
            edits=True,
        )

    def _approved(self, asked: Asked, context: Mapping[str, Any]) -> Any:
        """Return the request with the approved arguments.

        Args:
            asked: The checked request.
            context: The approved arguments.

        Raises:
            ConfigurationError: An approver's edit cannot be written into the request.
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
                f"{told(request)} has {error.name!r}, which has a default in another part of the request, "
                "so the value is ambiguous; the request was not sent: send the value in that part"
            ) from None


def _actions(found: Iterable[Operation], prefix: object, actions: ToolActions | None) -> dict[str, str]:
    if not isinstance(prefix, str) or not prefix.rstrip("."):
        raise ConfigurationError(f"prefix is {prefix!r}; use the first part of the actions, such as 'stripe'")
    names = ToolNames(actions)
    given: dict[str, str] = {}
    owners: dict[str, Operation] = {}
    for operation in found:
        action = names.action_of(ToolCall(operation.name, {}, server=prefix.rstrip(".")))
        other = owners.setdefault(action, operation)
        if other is not operation:
            raise ConfigurationError(
                f"{other.method} {other.path!r} and {operation.method} {operation.path!r} would have the "
                f"same action {action!r}; change the operationId of one of them, or set its action in "
                "actions="
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
                f"headers names {name!r}, which is a credential, not an argument; remove it"
            )
        found.append(name)
    return tuple(found)


def _is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= 0


def _refuse_disguised(request: Any) -> None:
    """Raise `ConfigurationError` if the API could handle the request as if it had another method, host or path."""
    for name in _DISGUISES:
        if name in request.headers:
            raise ConfigurationError(
                f"{told(request)} has the header {name!r}, which can make an API treat it as a different "
                "request; the request was not sent: remove the header"
            )
    host = request.headers.get("host", "").encode("utf-8", "replace").lower()
    if host != request.url.netloc.lower() or _ELSEWHERE & request.extensions.keys():
        raise ConfigurationError(
            f"{told(request)} would go to another host or path than the one in its address; "
            "the request was not sent: do not set the header 'Host' or the extensions 'target' and 'sni_hostname'"
        )


def _refuse_renamed(request: Any, arguments: Arguments) -> None:
    """Raise `ConfigurationError` for a POST request with an argument that makes some APIs use another method."""
    if request.method != "POST":
        return
    body = arguments.body
    named = [name for name, _ in arguments.query]
    if body.kind in ("members", "form"):
        named += body.value if body.kind == "members" else [name for name, _ in body.value]
    if _RENAMES in named or (body.kind == "bytes" and _RENAMES_PART.search(body.value)):
        raise ConfigurationError(
            f"{told(request)} has the argument {_RENAMES!r}, which can make an API treat it as a different "
            "request; the request was not sent: remove the argument"
        )
