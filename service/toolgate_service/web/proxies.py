"""Whom a request comes from, when it comes through the operator's own proxies (decisions §6).

Every proxy appends the address it heard from to ``X-Forwarded-For``. Only what a trusted one appended is true, so the
list is read from the right, and the first address that is no proxy of ours is the client's.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from starlette.types import Scope

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

FORWARDED_FOR = b"x-forwarded-for"

#: 192.0.2.1:80, [2001:db8::1], [2001:db8::1]:80
_WITH_PORT = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\](?::[0-9]{1,5})?|(?P<v4>[0-9.]+):[0-9]{1,5})")


def read_networks(text: str) -> tuple[Network, ...]:
    """Read a comma-separated list of addresses and networks.

    Raises:
        ValueError: an entry is neither, or an address within a network rather than the network.
    """
    return tuple(_network(entry.strip()) for entry in text.split(",") if entry.strip())


class TrustedProxies:
    """The proxies whose word is believed."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self._networks = networks

    def __bool__(self) -> bool:
        return bool(self._networks)

    def reveal_client(self, scope: Scope) -> None:
        """Put the client's address into the scope, if a trusted proxy brought the request."""
        peer = scope.get("client")
        if peer is None or not self._trusts(read_address(peer[0])):
            return
        values = [value for name, value in scope["headers"] if name == FORWARDED_FOR]
        # Several headers are one list (RFC 9110 §5.3).
        entries = b",".join(values).decode("latin-1").split(",")
        found = self._client(reversed(entries))
        if found is not None:
            # The port is the proxy's business.
            scope["client"] = (str(found), 0)

    def _client(self, entries: Iterable[str]) -> Address | None:
        nearest: Address | None = None
        for entry in entries:
            address = read_address(entry)
            if address is None:
                # Nothing to the left can be told from what a client invented.
                return nearest
            nearest = address
            if not self._trusts(address):
                return nearest
        return nearest

    def _trusts(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)


def read_address(text: str) -> Address | None:
    """Read an address, also with a port or in brackets; None when it is none."""
    text = text.strip(" \t")
    with_port = _WITH_PORT.fullmatch(text)
    if with_port:
        text = with_port["v6"] or with_port["v4"]
    # A zone means nothing on another machine.
    if "%" in text or (with_port and with_port["v6"] and ":" not in text):
        return None
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _network(entry: str) -> Network:
    # A zone means nothing on another machine.
    if "%" not in entry:
        with suppress(ValueError):
            return ip_network(entry)
    raise ValueError(
        f"{entry!r} is no address or network; write for instance 10.0.0.0/8, 192.0.2.1 or 2001:db8::/32"
    )
