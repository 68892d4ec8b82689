"""Validation of a request head (request line and headers) that goes beyond the validation by the HTTP parser.

A proxy in front of the gateway may interpret an ambiguous head differently. The gateway would then receive another
request than the proxy allowed. The gateway therefore rejects ambiguous heads.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address

from toolgate_service.http.responses import RawHeader

_VERSIONS = frozenset(("1.0", "1.1"))
_HOST = re.compile(rb"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|[A-Za-z0-9_.-]{1,253})(?::[0-9]{1,5})?")
_ABSOLUTE = re.compile(rb"(?P<scheme>https?)://(?P<authority>[^/?#]*)[/?]", re.IGNORECASE)
_DEFAULT_PORTS = {b"http": b":80", b"https": b":443"}

#: headers that a request must not contain more than once, with their names in error messages
_SINGLE = {
    b"x-api-key": "X-API-Key",
    b"authorization": "Authorization",
    b"idempotency-key": "Idempotency-Key",
    b"content-type": "Content-Type",
    b"x-request-id": "X-Request-ID",
}


def check_head(version: str, target: bytes, headers: Iterable[RawHeader]) -> None:
    """Reject a request head that a proxy and the gateway may interpret differently.

    Args:
        version: HTTP version.
        target: Request target.
        headers: Headers, with lower-case names.

    Raises:
        ValueError: The version is not 1.0 or 1.1; the Host header is missing (in HTTP/1.1), invalid or repeated; a
            Transfer-Encoding header is present in HTTP/1.0, or is anything but a single ``chunked``; the target
            contains a fragment, is neither a path nor an absolute URL, or contains another host than the Host header.
    """
    if version not in _VERSIONS:
        raise ValueError("unsupported version")
    host = coding = None
    for name, value in headers:
        if name == b"host":
            if host is not None or not _is_host(value):
                raise ValueError("invalid Host")
            host = value
        elif name == b"transfer-encoding":
            # Reject this header in HTTP/1.0, which does not define chunks: a proxy may determine the end of the body
            # differently (RFC 9112 §6.1).
            if coding is not None or version == "1.0" or value.strip(b" \t").lower() != b"chunked":
                raise ValueError("unsupported Transfer-Encoding")
            coding = value
    if host is None and version == "1.1":
        raise ValueError("no Host")
    if b"#" in target:
        raise ValueError("the request target contains a fragment")
    if not target.startswith(b"/"):
        _check_absolute(target, host)


def repeated_header(headers: Sequence[RawHeader]) -> str | None:
    """Return the name of the first single-value header that was sent more than once; None if there is none."""
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen and name in _SINGLE:
            return _SINGLE[name]
        seen.add(name)
    return None


def announces_body(headers: Iterable[RawHeader]) -> bool:
    """Return whether a request has a body: a Transfer-Encoding header, or a Content-Length other than 0."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0"))
        for name, value in headers
    )


@lru_cache(1024)
def _is_host(value: bytes) -> bool:
    found = _HOST.fullmatch(value)
    if found is None:
        return False
    if found["address"] is not None:
        try:
            IPv6Address(found["address"].decode("ascii"))
        except AddressValueError:
            return False
    return True


def _check_absolute(target: bytes, host: bytes | None) -> None:
    found = _ABSOLUTE.match(target)
    if found is None or host is None:
        raise ValueError("unsupported request target")
    default = _DEFAULT_PORTS[found["scheme"].lower()]
    if found["authority"].lower().removesuffix(default) != host.lower().removesuffix(default):
        raise ValueError("the target names another host than the Host header")
