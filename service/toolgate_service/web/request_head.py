"""Checks of a request's head that the parser does not make.

A proxy in front of the gateway may read an ambiguous head differently and forward another request than it allowed.
Ambiguous heads are therefore refused.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address

from toolgate_service.web.headers import RawHeader

_VERSIONS = frozenset(("1.0", "1.1"))
_HOST = re.compile(rb"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|[A-Za-z0-9_.-]{1,253})(?::[0-9]{1,5})?")
_ABSOLUTE = re.compile(rb"(?P<scheme>https?)://(?P<authority>[^/?#]*)[/?]", re.IGNORECASE)
_DEFAULT_PORTS = {b"http": b":80", b"https": b":443"}

#: headers with one value, by the names that messages use
_SINGLE = {
    b"x-api-key": "X-API-Key",
    b"authorization": "Authorization",
    b"idempotency-key": "Idempotency-Key",
    b"content-type": "Content-Type",
    b"x-request-id": "X-Request-ID",
}


def check_head(version: str, target: bytes, headers: Iterable[RawHeader]) -> None:
    """Refuse a head that two readers may understand differently.

    Args:
        version: of HTTP, as the parser read it.
        target: the request target.
        headers: names in lower case.

    Raises:
        ValueError: another version than 1.0 and 1.1, no Host with 1.1, an invalid or a second Host, another transfer
            coding than one ``chunked``, any transfer coding with 1.0, a target that is not a path, that names another
            host than the Host header, or that has a fragment.
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
            # A proxy that speaks HTTP/1.0 does not know of chunks (RFC 9112 §6.1).
            if coding is not None or version == "1.0" or value.strip(b" \t").lower() != b"chunked":
                raise ValueError("unsupported Transfer-Encoding")
            coding = value
    if host is None and version == "1.1":
        raise ValueError("no Host")
    if b"#" in target:
        raise ValueError("a fragment in the request target")
    if not target.startswith(b"/"):
        _check_absolute(target, host)


def repeated_header(headers: Sequence[RawHeader]) -> str | None:
    """Return the name of a header that was sent more than once although it has one value; None if there is none."""
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen and name in _SINGLE:
            return _SINGLE[name]
        seen.add(name)
    return None


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
