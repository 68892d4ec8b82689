"""Which URLs a webhook may have (decisions §10), and the one way in which they are kept."""

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from urllib.parse import SplitResult, urlsplit

import idna

from toolgate_service.webhooks.addresses import may_reach

MAX_URL = 2048
MAX_PORT = 65535

_HOST = re.compile(
    r"(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
#: a last label like these makes the whole host a number to some resolver: 2130706433, 0x7f.1, 0177.0.0.1
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
_VISIBLE = re.compile(r"[!-~]*")


class RefusedUrl(ValueError):
    """A webhook may not have this URL; the message says why, and what to write instead."""


def canonical_url(text: str, *, allow_private: bool) -> str:
    """Return a URL as it is kept and called: the host in lower case and in ASCII, everything else as it was written.

    Args:
        text: what somebody wrote.
        allow_private: whether the operator allows private addresses, and http.

    Raises:
        RefusedUrl: a webhook may not have it.
    """
    if len(text) > MAX_URL:
        raise RefusedUrl(f"must be at most {MAX_URL} characters")
    parts, port = _split(text)
    schemes = ("https", "http") if allow_private else ("https",)
    if parts.scheme not in schemes:
        raise RefusedUrl(f"must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}")
    if "@" in parts.netloc:
        raise RefusedUrl("must not contain a user or password; the deliveries are signed")
    if "#" in text:
        raise RefusedUrl("must not contain a fragment (#…)")
    host = _host(parts, allow_private=allow_private)
    rest = text.partition("://")[2][len(parts.netloc) :]
    if not _VISIBLE.fullmatch(rest) or "\\" in rest:
        raise RefusedUrl("must have a path and query of visible ASCII characters; write others as %XX")
    url = f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{rest}"
    if len(url) > MAX_URL:
        raise RefusedUrl(f"must be at most {MAX_URL} characters")
    return url


def _split(text: str) -> tuple[SplitResult, int | None]:
    # What `urlsplit` silently drops or repairs is refused instead: two readers of one URL must see the same host.
    if not text.isprintable() or " " in text or "\\" in text:
        raise RefusedUrl("must be a web address without spaces, control characters and backslashes")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise RefusedUrl("is not a web address; write for instance https://example.com/hook") from None
    if not parts.netloc or parts.hostname is None or not text.lower().startswith(f"{parts.scheme}://"):
        raise RefusedUrl("is not a web address; write for instance https://example.com/hook")
    if port == 0 or parts.netloc.endswith(":"):
        raise RefusedUrl(f"must have a port of 1-{MAX_PORT}, or none")
    return parts, port


def _host(parts: SplitResult, *, allow_private: bool) -> str:
    name = parts.hostname or ""
    if "[" in parts.netloc:
        return f"[{_literal(name, IPv6Address, allow_private=allow_private)}]"
    host = _ascii(name).removesuffix(".")
    if not _HOST.fullmatch(host):
        raise RefusedUrl("has a host that is no name; write for instance https://example.com/hook")
    last = host.rpartition(".")[2]
    if _NUMERIC.fullmatch(last):
        return str(_literal(host, IPv4Address, allow_private=allow_private))
    if not allow_private and ("." not in host or last == "localhost"):
        raise RefusedUrl(f"has the host {host!r}, which is a name of one network only")
    return host


def _ascii(name: str) -> str:
    # UTS 46 also turns full-width digits and dots into plain ones, before anybody looks for numbers.
    try:
        if name.isascii():
            return name.lower()
        return idna.encode(name, uts46=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError):
        raise RefusedUrl("has a host that is no name; write for instance https://example.com/hook") from None


def _literal(
    text: str, kind: type[IPv4Address] | type[IPv6Address], *, allow_private: bool
) -> IPv4Address | IPv6Address:
    try:
        address = kind(text)
    except AddressValueError:
        raise RefusedUrl(
            "has a host that is an address in an unusual spelling; write it like 192.0.2.1 or [2001:db8::1]"
        ) from None
    if not may_reach(str(address), allow_private=allow_private):
        raise RefusedUrl("has an address that webhooks may not reach: it is not public")
    return address
