"""Parsers for host names, origins, IP addresses and networks in settings and request headers."""

import re
from collections.abc import Collection
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple, TypeAlias

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]{1,253})(?::(?P<port>[0-9]{1,5}))?")
_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?")
_LOCAL = "localhost"


def read_hosts(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of host names.

    Raises:
        ValueError: An entry is not a host name.
    """
    hosts = tuple(entry.strip().lower() for entry in text.split(",") if entry.strip())
    for host in hosts:
        if not _NAME.fullmatch(host):
            raise ValueError(
                f"{host!r} is not a host name; write it without scheme and port, for example toolgate.example.com"
            )
    return hosts


def host_name(header: str) -> str | None:
    """Return the host name of a `Host` header in lower case and without the port; None if the header is invalid."""
    found = _HOST.fullmatch(header)
    return found["name"].lower().rstrip(".") if found else None


def is_allowed_host(name: str, names: Collection[str]) -> bool:
    """Return whether the gateway accepts requests for this host name.

    It accepts the names in `names`, `localhost` and its subdomains, and every IP address. The check prevents DNS
    rebinding: an attacker's domain name resolves to the gateway's address, and the browser then treats the gateway as a
    part of the attacker's site. This attack needs a domain name, so IP addresses are safe.
    """
    if name in names or name == _LOCAL or name.endswith(f".{_LOCAL}"):
        return True
    with suppress(ValueError):
        ip_address(name.strip("[]"))
        return True
    return False


def is_loopback(host: str) -> bool:
    """Return whether a host name or address refers to this machine. Connections within a machine need no encryption."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == _LOCAL


ANY = "*"
MAX_PORT = 65_535

_ORIGIN = re.compile(
    r"(?P<scheme>https?)://(?:[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?|\[[0-9a-f:]+\])(?::(?P<port>[0-9]{1,5}))?"
)
#: default port of each scheme; browsers omit it from the origin that they send
_DEFAULT_PORTS = {"http": "80", "https": "443"}


def read_origins(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of origins, or ``*`` for all origins.

    Raises:
        ValueError: An entry does not have the form in which browsers send origins, or the list contains ``*`` and other
            entries.
    """
    origins = tuple(entry.strip() for entry in text.split(",") if entry.strip())
    if ANY in origins and len(origins) > 1:
        raise ValueError(
            "'*' allows every origin, so it cannot be combined with other origins; remove '*' or the other origins"
        )
    for origin in origins:
        if origin != ANY and not is_origin(origin):
            raise ValueError(
                f"{origin!r} is not an origin; write scheme, host and port only, in lower case and without the default "
                "port, for example https://app.example.com"
            )
    return origins


def is_origin(text: str) -> bool:
    """Return whether a text is an http or https origin in exactly the form in which browsers send it."""
    found = _ORIGIN.fullmatch(text)
    if not found:
        return False
    port = found["port"]
    return port is None or (
        0 < int(port) <= MAX_PORT and port != _DEFAULT_PORTS[found["scheme"]] and port[0] != "0"
    )


def is_web_address(text: str) -> bool:
    """Return whether a text is an http or https URL that has no query, fragment or login."""
    scheme, _, rest = text.partition("://")
    host, _, path = rest.partition("/")
    return (
        is_origin(f"{scheme}://{host}")
        and path.isascii()
        and path.isprintable()
        and not set(path) & set(" ?#")
    )


Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

#: IP address with a port or in brackets, for example 192.0.2.1:80, [2001:db8::1] or [2001:db8::1]:80
_WITH_PORT = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\](?::[0-9]{1,5})?|(?P<v4>[0-9.]+):[0-9]{1,5})")


def read_networks(text: str) -> tuple[Network, ...]:
    """Parse a comma-separated list of IP addresses and networks.

    Raises:
        ValueError: An entry is neither an address nor a network, or a network has host bits, for example 10.0.0.1/8.
    """
    return tuple(_network(entry.strip()) for entry in text.split(",") if entry.strip())


def read_address(text: str) -> Address | None:
    """Parse an IP address with or without a port and brackets. Return None if the text is invalid."""
    text = text.strip(" \t")
    with_port = _WITH_PORT.fullmatch(text)
    if with_port:
        text = with_port["v6"] or with_port["v4"]
    # Reject an IPv6 zone index (the part after `%`), because it is valid only on the machine that wrote it.
    if "%" in text or (with_port and with_port["v6"] and ":" not in text):
        return None
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _network(entry: str) -> Network:
    # Reject an IPv6 zone index (the part after `%`), because it is valid only on the machine that wrote it.
    if "%" not in entry:
        with suppress(ValueError):
            return ip_network(entry)
    raise ValueError(
        f"{entry!r} is not an IP address or network; write for example 10.0.0.0/8, 192.0.2.1 or 2001:db8::/32"
    )


_LISTEN_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})")


class ListenAddress(NamedTuple):
    """Host and port on which a server listens for connections."""

    host: str
    port: int


def read_listen_address(text: str) -> ListenAddress:
    """Parse a listen address in the form ``HOST:PORT``. An IPv6 address must be in brackets.

    Raises:
        ValueError: The text does not have this form, or the port is larger than 65535.
    """
    found = _LISTEN_ADDRESS.fullmatch(text.strip())
    if found is None or int(found["port"]) > MAX_PORT:
        raise ValueError(
            f"{text!r} is not an address to listen on; write HOST:PORT, for example 127.0.0.1:9090"
        )
    return ListenAddress(found["v6"] or found["host"], int(found["port"]))
