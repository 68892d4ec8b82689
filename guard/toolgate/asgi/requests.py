"""One request: its arguments, what its client says after it, and what a person's edit makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from toolgate._capture.jsontext import dumps, loads
from toolgate.asgi.answers import Refusal
from toolgate.asgi.routes import Found
from toolgate.asgi.types import Message, Receive, Scope
from toolgate.errors import ConfigurationError
from toolgate.identity import valid_id

__all__ = ["HungUpError", "Request", "header", "usable"]

_LENGTHS: Final = (b"content-length", b"transfer-encoding")


class HungUpError(Exception):
    """The client is gone."""


class PathText(str):
    """An argument of the path. No approver changes it: a framework may have read the path before the guard."""

    __slots__ = ()


class Request:
    """A guarded request whose body was read.

    Args:
        scope: As it came.
        receive: What comes after the body.
        found: What it is for.
        agent_id: Who acts; None is the guard's own agent.
        body: Its body.

    Attributes:
        scope: As given.
        endpoint: What it is for.
        agent_id: As given.
        call_id: Its own name for the call.
        arguments: What the gateway is asked about, by name.

    Raises:
        Refusal: Its arguments cannot be read, or could be read in two ways.
    """

    def __init__(
        self, scope: Scope, receive: Receive, found: Found, agent_id: str | None, body: bytes
    ) -> None:
        self.scope, self._receive, self._content = scope, receive, body
        self.endpoint, self.agent_id = found.endpoint, agent_id
        key = header(scope, "Idempotency-Key")
        self.call_id = None if key is None else usable(key, "Idempotency-Key")
        self._next: asyncio.Future[Message] | None = None
        self._told = False
        query = _query(scope["query_string"])
        self._nested = found.query is None
        if found.query is None:
            query = {"query": query} if query else {}
        elif unknown := query.keys() - found.query:
            raise Refusal(400, f"the query has {min(unknown)!r}, which is no argument of this action")
        self._query, self._body = query, _body(scope, body)
        reserved = {*found.path, *({"query"} if found.query is None else found.query)}
        if twice := self._body.keys() & reserved:
            # One place for each: what is approved in one must not be taken from another.
            raise Refusal(400, f"the body has {min(twice)!r}, which is an argument of the path or query")
        path = {name: PathText(value) for name, value in found.path.items()}
        self.arguments: dict[str, Any] = {**path, **query, **self._body}

    def as_approved(self, context: Mapping[str, Any]) -> Scope:
        """The scope to carry it out with; an edit is put into query and body."""
        scope = self.scope
        if any(context[name] is not self.arguments[name] for name in self._query):
            query = {name: context[name] for name in self._query}
            text = urlencode(query["query"] if self._nested else query, doseq=True)
            scope = {**scope, "query_string": text.encode()}
        if any(context[name] is not self.arguments[name] for name in self._body):
            text = dumps({name: context[name] for name in self._body})
            self._content = text.encode("utf-8", "surrogatepass")
            kept = [each for each in scope["headers"] if each[0].lower() not in _LENGTHS]
            scope = {**scope, "headers": [*kept, (b"content-length", str(len(self._content)).encode())]}
        return scope

    async def receive(self) -> Message:
        """What the application is sent: the body, and whatever the client says after it."""
        if not self._told:
            self._told = True
            return {"type": "http.request", "body": self._content, "more_body": False}
        if self._next is None:
            return await self._receive()
        message = await asyncio.shield(self._next)
        self._next = None
        return message

    @asynccontextmanager
    async def present(self) -> AsyncIterator[None]:
        """Give up what is done inside when the client hangs up.

        Raises:
            HungUpError: It did.
        """
        # Left to the application, if it is not heard before: what a server says once is not said again.
        heard = self._next = asyncio.ensure_future(self._receive())
        loop, limit, inside = asyncio.get_running_loop(), asyncio.timeout(None), True
        try:
            async with limit:
                heard.add_done_callback(lambda _: limit.reschedule(loop.time()) if inside else None)
                try:
                    yield
                finally:
                    inside = False
        except TimeoutError:
            if limit.expired():
                raise HungUpError from None
            raise

    def close(self) -> None:
        """Listen no longer."""
        if self._next is not None and not self._next.cancel() and not self._next.cancelled():
            # Looked at, so that asyncio does not tell of an error nobody waits for.
            self._next.exception()

    @classmethod
    async def read(
        cls, scope: Scope, receive: Receive, found: Found, agent_id: str | None, most: int
    ) -> Request:
        """Read the body, of `most` bytes at most.

        Raises:
            Refusal: It is longer, or no arguments can be read of it.
            HungUpError: The client did not send all of it.
        """
        pieces, size, more = list[bytes](), 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise HungUpError
            pieces.append(message.get("body", b""))
            size, more = size + len(pieces[-1]), message.get("more_body", False)
            if size > most:
                raise Refusal(413, f"the body of a guarded request has at most {most} bytes")
        return cls(scope, receive, found, agent_id, b"".join(pieces))


def header(scope: Scope, name: str) -> str | None:
    """The one header of that name, if there is one.

    Raises:
        Refusal: There are several.
    """
    wanted = name.lower().encode("latin-1")
    found = [value.decode("latin-1").strip() for each, value in scope["headers"] if each.lower() == wanted]
    if len(found) > 1:
        raise Refusal(400, f"the request has several headers {name}")
    return found[0] if found else None


def usable(value: str, name: str) -> str:
    """The value, if it can be an identifier.

    Raises:
        Refusal: It can be none.
    """
    try:
        return valid_id(value, name)
    except ConfigurationError as error:
        raise Refusal(400, str(error)) from None


def _query(text: bytes) -> dict[str, Any]:
    found: dict[str, list[str]] = {}
    try:
        for name, value in parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict"):
            found.setdefault(name, []).append(value)
    except ValueError:
        raise Refusal(400, "the query is no text in UTF-8") from None
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _body(scope: Scope, content: bytes) -> dict[str, Any]:
    if not content:
        return {}
    kind = (header(scope, "content-type") or "").partition(";")[0].strip().lower()
    coding = header(scope, "content-encoding") or "identity"
    # Read otherwise than the application reads it, it would be another call that is approved.
    if not (kind == "application/json" or kind.endswith("+json")) or coding.lower() != "identity":
        raise Refusal(415, "the body of a guarded request is plain application/json")
    try:
        found: Any = loads(content.decode(), exactly=True)
    except (ValueError, RecursionError):
        raise Refusal(400, "the body is no JSON that is read in one way only") from None
    if not isinstance(found, dict):
        raise Refusal(400, "the body of a guarded request is a JSON object")
    return found
