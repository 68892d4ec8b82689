"""A request as a person changed it, or none: what is written is read again before it is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from toolgate import ConfigurationError
from toolgate._capture.jsontext import dumps, exact
from toolgate_integrations.openapi.arguments import Arguments, Place
from toolgate_integrations.openapi.bodies import told
from toolgate_integrations.openapi.matching import Found

__all__ = ["edited"]


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
