"""Which pages of other origins may call the API from a browser: none, unless the operator names them (decisions §2).

Never with credentials: whoever calls brings a token or a key in a header, and no cookie is sent along.
"""

import re
from collections.abc import Sequence

ANY = "*"
MAX_PORT = 65_535

_ORIGIN = re.compile(
    r"(?P<scheme>https?)://(?:[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?|\[[0-9a-f:]+\])(?::(?P<port>[0-9]{1,5}))?"
)
#: what browsers leave away
_DEFAULT_PORTS = {"http": "80", "https": "443"}

#: what a page may read beside the body
_EXPOSED = (
    b"Idempotency-Mismatch, Idempotency-Replayed, Link, Retry-After, X-API-Version, X-Call-Let-Through, X-Decision-ID, "
    b"X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-Request-ID, X-Toolgate-Environment, "
    b"X-Toolgate-Organization, X-Total-Count"
)
_PREFLIGHT = {
    b"access-control-allow-methods": b"GET, HEAD, POST, PUT, DELETE",
    b"access-control-allow-headers": b"Authorization, Content-Type, Idempotency-Key, X-API-Key, X-Request-ID",
    b"access-control-max-age": b"600",
}


def read_origins(text: str) -> tuple[str, ...]:
    """Read a comma-separated list of exact origins, or the one word ``*``.

    Raises:
        ValueError: an entry is no origin as browsers send it, or ``*`` stands beside others.
    """
    origins = tuple(entry.strip() for entry in text.split(",") if entry.strip())
    if ANY in origins and len(origins) > 1:
        raise ValueError("'*' lets every origin in; write it alone, or leave it out")
    for origin in origins:
        if origin != ANY and not is_origin(origin):
            raise ValueError(
                f"{origin!r} is no origin; write scheme, host and port only, in lower case and without the default "
                "port, for instance https://app.example.com"
            )
    return origins


def is_origin(text: str) -> bool:
    """Say whether a text is an http origin, letter by letter as browsers send it."""
    found = _ORIGIN.fullmatch(text)
    if not found:
        return False
    port = found["port"]
    return port is None or (
        0 < int(port) <= MAX_PORT and port != _DEFAULT_PORTS[found["scheme"]] and port[0] != "0"
    )


def is_web_address(text: str) -> bool:
    """Say whether a text is an origin with nothing but a path behind it."""
    scheme, _, rest = text.partition("://")
    host, _, path = rest.partition("/")
    return (
        is_origin(f"{scheme}://{host}")
        and path.isascii()
        and path.isprintable()
        and not set(path) & set(" ?#")
    )


class AllowedOrigins:
    """The origins that are let in."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._any = ANY in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    def __bool__(self) -> bool:
        return bool(self._origins)

    def headers(self, origin: bytes | None) -> dict[bytes, bytes]:
        """Return what an answer to a request of this origin carries."""
        if self._any:
            return {b"access-control-allow-origin": ANY.encode(), b"access-control-expose-headers": _EXPOSED}
        # Also where the origin is not let in: a cache must not give one origin's answer to another.
        headers = {b"vary": b"Origin"}
        if origin is not None and origin in self._origins:
            headers[b"access-control-allow-origin"] = origin
            headers[b"access-control-expose-headers"] = _EXPOSED
        return headers

    def preflight(self, origin: bytes | None) -> dict[bytes, bytes] | None:
        """Return the headers of the answer to a browser that asks before it calls; None for others' pages."""
        return _PREFLIGHT if origin and (self._any or origin in self._origins) else None
