"""ASGI middleware that guards HTTP endpoints: every request is checked before the application receives it.

from toolgate.asgi import GuardMiddleware

app = GuardMiddleware(app, actions={"POST /refunds/{charge_id}": "stripe.refund"})
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import parse_qs, urlencode

from toolgate._action import Action
from toolgate._capture.jsontext import Json, dumps, loads
from toolgate._default import action, default_guard
from toolgate._guard import Guard
from toolgate._identity import acting_as, tool_call, valid_id
from toolgate._options import current_on_hold
from toolgate._telemetry import log_event
from toolgate.errors import (
    ActionDenied,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    ConfigurationError,
    GatewayUnavailable,
    GuardError,
    OutboxFull,
)

if TYPE_CHECKING:
    from toolgate._capture.rules import AmountFrom

__all__ = ["Endpoint", "GuardMiddleware"]

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Actions: TypeAlias = "Mapping[str, str | Endpoint] | Callable[[Scope], str | Endpoint | None]"
#: The endpoint of a request, the arguments in its path, and the names of its query parameters (None: any names).
_Match: TypeAlias = "tuple[Endpoint, dict[str, str], frozenset[str] | None]"
AgentSource: TypeAlias = "str | Callable[[Scope], str | Awaitable[str | None] | None]"

_FAILED_STATUS: Final = 400
_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z_]\w*)(:path)?\}", re.ASCII)
_PATTERN: Final = re.compile(
    rf"(?P<method>[A-Z]+|\*) (?P<path>/(?:[^\s{{}}?]|{_PLACEHOLDER.pattern})*)(?:\?(?P<query>[^&]+(?:&[^&]+)*))?",
    re.ASCII,
)
# Matches paths that routers normalize in different ways. Such a path could look unguarded and reach a guarded endpoint.
_AMBIGUOUS_PATH: Final = re.compile(r"[\x00-\x1f\x7f]|//|/\.\.?(/|\Z)")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Guarded endpoint: the action of its requests and the options of their checks.

    Attributes:
        action: The action, like `stripe.refund`.
        on_hold: Reaction to a call that requires an approval: `notify_model` responds with HTTP 202, `wait` waits; None
            uses the middleware's setting.
        hold_timeout: Seconds to wait for the approver; None uses the middleware's setting.
        include: Names of the arguments that are shown to the gateway and the approver; all others are hidden.
        exclude: Names of arguments that are hidden from the gateway and the approver.
        redact: Additional names of secrets, whose values are hidden at any depth, and compiled patterns of secrets.
        amount: The argument that is compared with `max_amount`, or a function of the arguments that returns the amount.
    """

    action: str
    on_hold: Literal["notify_model", "wait"] | None = None
    hold_timeout: float | None = None
    include: Iterable[str] | None = None
    exclude: Iterable[str] = ()
    redact: Iterable[str | re.Pattern[str]] = ()
    amount: AmountFrom | None = None

    def __post_init__(self) -> None:
        # The options are copied into tuples, because the first request would exhaust an iterator.
        for option in ("include", "exclude", "redact"):
            given = getattr(self, option)
            if given is not None and not isinstance(given, (str, re.Pattern)):
                object.__setattr__(self, option, tuple(given))
        object.__setattr__(self, "on_hold", current_on_hold(self.on_hold, stacklevel=5))


class GuardMiddleware:
    """ASGI middleware that checks the requests to an application's endpoints. Needs asyncio.

    A request that matches `actions` is checked. If it is allowed, it is passed to the application, and logged with
    the status of the response. A request that matches neither `actions` nor `unguarded` is refused: otherwise an
    endpoint that is added later would run without a check.

    Args:
        app: The application.
        actions: Mapping from request patterns, like `"POST /refunds/{charge_id}?dry_run"`, to an action or `Endpoint`;
            the first match counts. Or a function of the ASGI scope that returns an action, an `Endpoint` or None.
        unguarded: Patterns of requests that need no check, like `"GET /health"`; `*` stands for any method.
        guard: The guard that checks requests; None uses the default guard, which `toolgate.guarded` uses too.
        agent: Name of the header with the agent's id, or a function, possibly asynchronous, that receives the scope
            and returns the id. A request without an id is refused. None uses the agent of the guard.
        on_hold: Reaction to a call that requires an approval: `notify_model` responds with HTTP 202, `wait` waits.
        hold_timeout: Seconds that `wait` waits before it responds with 202; None waits until the client disconnects.
        max_body: Maximum size of a guarded request's body, in bytes; a larger body is refused with status 413.

    Raises:
        ConfigurationError: If an argument is invalid.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        actions: Actions,
        unguarded: Iterable[str] = (),
        guard: Guard | None = None,
        agent: AgentSource | None = None,
        on_hold: Literal["notify_model", "wait"] = "notify_model",
        hold_timeout: float | None = None,
        max_body: int = 1024 * 1024,
    ) -> None:
        if guard is not None and not isinstance(guard, Guard):
            raise ConfigurationError(f"Invalid guard {guard!r}: expected a toolgate.Guard or None")
        is_header = isinstance(agent, str) and agent.isascii() and agent.strip() == agent != ""
        if not (agent is None or callable(agent) or is_header):
            raise ConfigurationError(f"Invalid agent {agent!r}: expected the name of a header, or a function")
        if type(max_body) is not int or max_body < 0:
            raise ConfigurationError(f"Invalid max_body {max_body!r}: expected a positive number of bytes")
        self._app = app
        self._routes = _Routes(actions, unguarded)
        self._guard = guard
        self._agent = agent
        self._on_hold: Literal["notify_model", "wait"] = current_on_hold(on_hold, stacklevel=4)
        self._hold_timeout = hold_timeout
        self._max_body = max_body
        # An `Action` is created for each endpoint, so that invalid options raise an error here, before any request.
        defaults = [Endpoint("asgi"), Endpoint("asgi", on_hold="wait")]
        for endpoint in defaults + [each for _, each in self._routes.guarded]:
            self._action(endpoint, {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection: check a guarded request first, and pass an unguarded one to the application."""
        if scope["type"] not in {"http", "websocket", "lifespan"}:
            raise ConfigurationError(f"Invalid connection type {scope['type']!r}: expected http or websocket")
        try:
            found = None if scope["type"] == "lifespan" else self._routes.find(scope)
            if found is None:
                return await self._app(scope, receive, send)
            request = await self._read(scope, receive, found)
            try:
                return await self._run(request, send)
            finally:
                request.close()
        except _Refused as refused:
            return await refused.respond(scope, send)
        except (_ClientDisconnected, FailedResponse):
            return None

    async def _read(self, scope: Scope, receive: Receive, found: _Match) -> _Request:
        agent_id = await self._agent_id(scope)
        pieces, size, more = list[bytes](), 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise _ClientDisconnected
            pieces.append(message.get("body", b""))
            size, more = size + len(pieces[-1]), message.get("more_body", False)
            if size > self._max_body:
                raise _Refused(413, f"the body is larger than {self._max_body} bytes")
        return _Request(scope, receive, found, agent_id, b"".join(pieces))

    async def _run(self, request: _Request, send: Send) -> None:
        endpoint, agent_id, status = request.endpoint, request.agent_id, 0

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        async with AsyncExitStack() as stack:
            stack.enter_context(nullcontext() if agent_id is None else acting_as(agent_id))
            stack.enter_context(tool_call(request.call_id))
            try:
                block = self._captured(endpoint, request.arguments)
                waits = (endpoint.on_hold or self._on_hold) == "wait"
                async with request.until_disconnect() if waits else nullcontext():
                    await stack.enter_async_context(block)
            except GuardError as error:
                raise _refusal_of(error, endpoint.action, agent_id) from None
            # The application is called outside the `try`, because its own GuardError must not be handled as a refusal.
            await self._app(request.approved_scope(block.context), request.receive, send_and_note)
            if not 0 < status < _FAILED_STATUS:
                raise FailedResponse(f"HTTP status {status}" if status else "no response")

    def _captured(self, endpoint: Endpoint, arguments: dict[str, object]) -> Action:
        block = self._action(endpoint, arguments)
        if endpoint.amount is not None:
            if self._guard is None:
                # Raises an error if settings are missing; `capture` below would report an invalid request instead.
                default_guard()
            try:
                block.capture()
            except ConfigurationError as error:
                raise _Refused(400, str(error)) from None
        return block

    def _action(self, endpoint: Endpoint, arguments: dict[str, object]) -> Action:
        on_hold = endpoint.on_hold or self._on_hold
        hold_timeout = self._hold_timeout if endpoint.hold_timeout is None else endpoint.hold_timeout
        make = action if self._guard is None else self._guard.action
        return make(
            endpoint.action,
            arguments,
            on_hold="wait" if on_hold == "wait" else "raise",
            hold_timeout=hold_timeout if on_hold == "wait" else None,
            include=endpoint.include,
            exclude=endpoint.exclude,
            redact=endpoint.redact,
            amount=endpoint.amount,
            edits=True,
        )

    async def _agent_id(self, scope: Scope) -> str | None:
        if self._agent is None:
            return None
        found = _header(scope, self._agent) if isinstance(self._agent, str) else self._agent(scope)
        agent_id = await found if inspect.isawaitable(found) else found
        if agent_id is None:
            # The guard's agent id is not used instead, because that agent may have more permissions than the client.
            raise _Refused(403, "the request does not contain an agent id", "unnamed")
        return _checked_id(agent_id, "the agent's id")


class FailedResponse(Exception):
    """Raised after a response of status 400 or above, so that the guard logs a failure; the middleware catches it."""


class _ClientDisconnected(Exception):
    pass


class _Refused(Exception):
    """Raised for a request that is not passed to the application; contains the response to the client."""

    def __init__(self, status: int, detail: str, outcome: str = "refused", **members: str | None) -> None:
        super().__init__(detail)
        self.status = status
        self._body: dict[str, Json] = {"detail": detail, "outcome": outcome, **members}
        self._headers = {"content-type": "application/json", "cache-control": "no-store"}
        self._headers["x-toolgate-outcome"] = outcome
        if retry_after := {202: "10", 503: "5"}.get(status):
            # The value in seconds is larger for 202 (waiting for an approver) than for 503 (gateway unavailable).
            self._headers["retry-after"] = retry_after

    async def respond(self, scope: Scope, send: Send) -> None:
        if scope["type"] == "websocket":
            # Code 1008 means "policy violation" (RFC 6455). Before the connection is accepted, servers respond 403.
            await send({"type": "websocket.close", "code": 1008})
            return
        body = dumps(self._body).encode()
        headers = [(name.encode(), value.encode()) for name, value in self._headers.items()]
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _refusal_of(error: GuardError, action: str, agent_id: str | None) -> _Refused:
    ids: dict[str, str | None] = {"action": action, "approval_id": getattr(error, "approval_id", None)}
    if isinstance(error, ApprovalPending):
        detail = "not run yet: a person must approve the call; repeat the same request after the approval"
        return _Refused(202, detail, "pending", **ids)
    if isinstance(error, ActionDenied):
        return _Refused(
            403, error.reason, "declined" if isinstance(error, ApprovalDenied) else "blocked", **ids
        )
    if isinstance(error, ApprovalExpired):
        return _Refused(403, "the approval request expired", "expired", **ids)
    # The error may contain settings and addresses: it is logged for the operator, and not sent to the client.
    log_event("request_failed", action, agent_id, type(error).__name__, reason=error, level=logging.ERROR)
    if isinstance(error, GatewayUnavailable):
        detail = "not run: the permission gateway is unavailable"
    elif isinstance(error, OutboxFull):
        detail = "not run: the call could not be recorded"
    else:
        detail = "not run: the permission gateway could not decide; contact the operator"
        return _Refused(500, detail, "fault", action=action)
    return _Refused(503, detail, "unavailable", action=action)


class _PathArgument(str):
    """Argument from the path. Approvers cannot edit it, because a framework may have read the path already."""

    __slots__ = ()


class _Request:
    """Guarded request with its body; the constructor raises `_Refused` if the arguments are invalid or ambiguous."""

    _next: asyncio.Future[Message] | None

    def __init__(
        self, scope: Scope, receive: Receive, found: _Match, agent_id: str | None, body: bytes
    ) -> None:
        self.scope, self._receive, self._content = scope, receive, body
        self.endpoint, path, parameters = found
        self.agent_id = agent_id
        self._body_sent, self._next = False, None
        key = _header(scope, "Idempotency-Key")
        self.call_id = None if key is None else _checked_id(key, "Idempotency-Key")
        query = _query_arguments(scope["query_string"])
        self._nests_query = parameters is None
        if parameters is None:
            query = {"query": query} if query else {}
        elif unknown := query.keys() - parameters:
            raise _Refused(400, f"unknown query parameter {min(unknown)!r}")
        self._query, self._body = query, _body_arguments(scope, body)
        if duplicates := self._body.keys() & {*path, *({"query"} if parameters is None else parameters)}:
            # Of two values, the approval would cover only one, and the application might use the other.
            raise _Refused(400, f"the body repeats {min(duplicates)!r}, an argument of the path or query")
        fixed = {name: _PathArgument(value) for name, value in path.items()}
        self.arguments: dict[str, Any] = {**fixed, **query, **self._body}

    def approved_scope(self, context: Mapping[str, Any]) -> Scope:
        """Return the ASGI scope for the application, with an approver's edits applied to the query and the body."""
        scope = self.scope
        if any(context[name] is not self.arguments[name] for name in self._query):
            query = {name: context[name] for name in self._query}
            text = urlencode(query["query"] if self._nests_query else query, doseq=True)
            scope = {**scope, "query_string": text.encode()}
        if any(context[name] is not self.arguments[name] for name in self._body):
            body = {name: context[name] for name in self._body}
            self._content = dumps(body).encode("utf-8", "surrogatepass")
            dropped = (b"content-length", b"transfer-encoding")
            headers = [each for each in scope["headers"] if each[0].lower() not in dropped]
            headers.append((b"content-length", str(len(self._content)).encode()))
            scope = {**scope, "headers": headers}
        return scope

    async def receive(self) -> Message:
        """Return the body at the first call, then the client's messages; this is the application's ASGI `receive`."""
        if not self._body_sent:
            self._body_sent = True
            return {"type": "http.request", "body": self._content, "more_body": False}
        if self._next is None:
            return await self._receive()
        message = await asyncio.shield(self._next)
        self._next = None
        return message

    @asynccontextmanager
    async def until_disconnect(self) -> AsyncIterator[None]:
        """Cancel the body of the `with` block and raise `_ClientDisconnected` when the client disconnects."""
        # The server delivers each message only once. If it arrives after the block, `receive` reads it from `_next`.
        message = self._next = asyncio.ensure_future(self._receive())
        loop, limit, is_inside = asyncio.get_running_loop(), asyncio.timeout(None), True
        try:
            async with limit:
                message.add_done_callback(lambda _: limit.reschedule(loop.time()) if is_inside else None)
                try:
                    yield
                finally:
                    is_inside = False
        except TimeoutError:
            if limit.expired():
                raise _ClientDisconnected from None
            raise

    def close(self) -> None:
        """Stop waiting for the client's next message."""
        if self._next is not None and not self._next.cancel() and not self._next.cancelled():
            # The exception is retrieved, because asyncio warns about exceptions that are never retrieved.
            self._next.exception()


def _header(scope: Scope, name: str) -> str | None:
    wanted = name.lower().encode("latin-1")
    found = [value.decode("latin-1").strip() for each, value in scope["headers"] if each.lower() == wanted]
    if len(found) > 1:
        raise _Refused(400, f"the request has more than one header {name}; send only one")
    return found[0] if found else None


def _checked_id(value: str, name: str) -> str:
    try:
        return valid_id(value, name)
    except ConfigurationError as error:
        raise _Refused(400, str(error)) from None


def _query_arguments(text: bytes) -> dict[str, Any]:
    try:
        found = parse_qs(text.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise _Refused(400, "the query is not UTF-8 text") from None
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _body_arguments(scope: Scope, content: bytes) -> dict[str, Any]:
    if not content:
        return {}
    kind = (_header(scope, "content-type") or "").partition(";")[0].strip().lower()
    encoding = (_header(scope, "content-encoding") or "identity").lower()
    # Only JSON is accepted. The application might parse other formats differently, and run an unapproved call.
    if not (kind == "application/json" or kind.endswith("+json")) or encoding != "identity":
        raise _Refused(415, "the body of a guarded request must be uncompressed application/json")
    try:
        found: Any = loads(content.decode(), exactly=True)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _Refused(400, "the body of a guarded request must be one JSON object without duplicate keys")
    return found


class _Pattern:
    """Parsed request pattern: method, path with placeholders, and names of query parameters."""

    def __init__(self, text: object, *, is_guarded: bool) -> None:
        parts = _PATTERN.fullmatch(text) if isinstance(text, str) else None
        if parts is None or (parts["method"] == "*" if is_guarded else parts["query"] is not None):
            raise ConfigurationError(
                f"Invalid request pattern {text!r}: write it like 'POST /refunds/{{id}}?note'"
            )
        self._method: str = parts["method"]
        query: list[str] = parts["query"].split("&") if parts["query"] else []
        self.query = frozenset(query)
        names = [name for name, _ in _PLACEHOLDER.findall(parts["path"])] + query
        if len(set(names)) != len(names):
            raise ConfigurationError(f"Duplicate argument in request pattern {text!r}: rename one of them")
        # The backslashes before the braces were added by `re.escape`.
        regex = re.sub(r"\\{(\w+):path\\}", r"(?P<\1>(?s:.*))", re.escape(parts["path"]))
        self._regex = re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", regex))

    def match(self, method: str | None, path: str) -> dict[str, str] | None:
        """Return the path's arguments, or None without a match. If `method` is None, only the path is compared."""
        # A HEAD request matches patterns for GET, because frameworks run the GET handler for it.
        is_same = method is None or self._method in {"*", method, "GET" if method == "HEAD" else method}
        found = self._regex.fullmatch(path) if is_same else None
        return None if found is None else found.groupdict()


class _Routes:
    """Parsed patterns of guarded and unguarded requests."""

    def __init__(self, actions: Actions, unguarded: Iterable[str]) -> None:
        if not isinstance(actions, Mapping) and not callable(actions):
            raise ConfigurationError(f"Invalid actions {actions!r}: expected a mapping or a function")
        if isinstance(unguarded, str) or not isinstance(unguarded, Iterable):
            raise ConfigurationError(f"Invalid unguarded {unguarded!r}: expected a list such as ['GET /']")
        self._function = None if isinstance(actions, Mapping) else actions
        self.guarded = [
            (_Pattern(text, is_guarded=True), _endpoint(action))
            for text, action in (actions.items() if isinstance(actions, Mapping) else ())
        ]
        self._unguarded = [_Pattern(text, is_guarded=False) for text in unguarded]

    def find(self, scope: Scope) -> _Match | None:
        """Return the endpoint and arguments of a guarded request, or None if it is unguarded; refuse all others."""
        path, root = str(scope["path"]), str(scope.get("root_path", ""))
        if root and (path + "/").startswith(root + "/"):
            # Patterns are relative to the application's root, so the prefix of a mount point or proxy is removed.
            path = path[len(root) :]
        if _AMBIGUOUS_PATH.search(path):
            raise _Refused(400, "the path contains control characters, empty segments or dot segments")
        # A websocket starts with a GET request. Guarded paths refuse websockets, because messages cannot be checked.
        is_websocket = scope["type"] == "websocket"
        method: str = "GET" if is_websocket else scope["method"]
        found: _Match | None = None
        if self._function is None:
            for pattern, endpoint in self.guarded:
                values = pattern.match(None if is_websocket else method, path)
                if values is not None:
                    found = endpoint, values, pattern.query
                    break
        elif (named := self._function(scope)) is not None:
            # `actions` is a function here, so there is no pattern with placeholders such as `/charges/{id}`. The whole
            # path and the whole query are therefore the arguments.
            found = _endpoint(named), {"method": method, "path": path}, None
        if found is not None and is_websocket:
            raise _Refused(403, "a guarded path does not accept websockets")
        if found is None and all(each.match(method, path) is None for each in self._unguarded):
            raise _Refused(403, f"no action is configured for {method} {path}", "unnamed")
        return found


def _endpoint(action: object) -> Endpoint:
    if isinstance(action, Endpoint):
        return action
    if isinstance(action, str):
        return Endpoint(action)
    raise ConfigurationError(f"Invalid action {action!r}: expected a str like 'crm.read' or Endpoint")
