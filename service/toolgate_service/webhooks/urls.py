"""Validation and normalization of the URLs of webhooks."""

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from urllib.parse import SplitResult, urlsplit

import idna

from toolgate_service.webhooks.ssrf import is_reachable

MAX_URL = 2048
MAX_PORT = 65535

_HOST = re.compile(
    r"(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
#: Last label of a host name that some resolvers interpret as an IPv4 address, for example 2130706433, 0x7f.1 or
#: 0177.0.0.1.
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
_VISIBLE = re.compile(r"[!-~]*")


class InvalidUrl(ValueError):
    """Error: the URL is not allowed for webhooks. The message contains the reason and the fix."""


def canonical_url(text: str, *, allow_private: bool) -> str:
    """Validate the URL of a webhook, and return it with the host in lower case and ASCII.

    Args:
        text: The URL as the user entered it.
        allow_private: True if the operator allows private addresses and the scheme ``http``.

    Raises:
        InvalidUrl: The URL is not allowed.
    """
    if len(text) > MAX_URL:
        raise InvalidUrl(f"must be at most {MAX_URL} characters")
    parts, port = _split(text)
    schemes = ("https", "http") if allow_private else ("https",)
    if parts.scheme not in schemes:
        raise InvalidUrl(f"must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}")
    if "@" in parts.netloc:
        raise InvalidUrl("must not contain a user or password; the deliveries are signed")
    if "#" in text:
        raise InvalidUrl("must not contain a fragment (#…)")
    host = _host(parts, allow_private=allow_private)
    rest = text.partition("://")[2][len(parts.netloc) :]
    if not _VISIBLE.fullmatch(rest) or "\\" in rest:
        raise InvalidUrl("must have a path and query of visible ASCII characters; write others as %XX")
    url = f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{rest}"
    if len(url) > MAX_URL:
        raise InvalidUrl(f"must be at most {MAX_URL} characters")
    return url


def mask_url(url: str) -> str:
    """Return a URL without its path. The path of a Slack URL is a credential and must not be shown."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/…"


def _split(text: str) -> tuple[SplitResult, int | None]:
    # Characters that `urlsplit` silently drops or replaces are rejected. Otherwise another parser could find a
    # different host in the same URL.
    if not text.isprintable() or " " in text or "\\" in text:
        raise InvalidUrl("must be a web address without spaces, control characters and backslashes")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise InvalidUrl("is not a web address; write for instance https://example.com/hook") from None
    if not parts.netloc or parts.hostname is None or not text.lower().startswith(f"{parts.scheme}://"):
        raise InvalidUrl("is not a web address; write for instance https://example.com/hook")
    if port == 0 or parts.netloc.endswith(":"):
        raise InvalidUrl(f"must have a port of 1-{MAX_PORT}, or none")
    return parts, port


def _host(parts: SplitResult, *, allow_private: bool) -> str:
    name = parts.hostname or ""
    if "[" in parts.netloc:
        return f"[{_literal(name, IPv6Address, allow_private=allow_private)}]"
    host = _ascii(name).removesuffix(".")
    if not _HOST.fullmatch(host):
        raise InvalidUrl("has a host that is no name; write for instance https://example.com/hook")
    last = host.rpartition(".")[2]
    if _NUMERIC.fullmatch(last):
        return str(_literal(host, IPv4Address, allow_private=allow_private))
    if not allow_private and ("." not in host or last == "localhost"):
        raise InvalidUrl(f"has the host {host!r}, which is a name of one network only")
    return host


def _ascii(name: str) -> str:
    # UTS 46 also maps full-width digits and dots to ASCII, so that the later check finds all numeric hosts.
    try:
        if name.isascii():
            return name.lower()
        return idna.encode(name, uts46=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError):
        raise InvalidUrl("has a host that is no name; write for instance https://example.com/hook") from None


def _literal(
    text: str, kind: type[IPv4Address] | type[IPv6Address], *, allow_private: bool
) -> IPv4Address | IPv6Address:
    try:
        address = kind(text)
    except AddressValueError:
        raise InvalidUrl(
            "has a host that is an address in an unusual spelling; write it like 192.0.2.1 or [2001:db8::1]"
        ) from None
    if not is_reachable(str(address), allow_private=allow_private):
        raise InvalidUrl("has an address that webhooks may not reach: it is not public")
    return address
