"""Which addresses a webhook may reach (decisions §10): somebody's URL must not make the gateway talk to its own network.

The tables are our own, and not those of Python's `ipaddress`, which differ from one patch release to the next.
"""

from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address


class Kind(Enum):
    """What an address is to webhooks."""

    #: global unicast
    PUBLIC = "public"
    #: of this machine or a private network: the operator may allow it
    PRIVATE = "private"
    #: never
    FORBIDDEN = "forbidden"


#: Where clouds keep what only the machine itself may read: credentials above all.
METADATA_4 = tuple(map(IPv4Network, ("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32")))
METADATA_6 = tuple(map(IPv6Network, ("fd00:ec2::/32", "fd20:ce::254/128", "fd00:42::42/128")))

PRIVATE_4 = tuple(
    map(IPv4Network, ("10.0.0.0/8", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"))
)
PRIVATE_6 = tuple(map(IPv6Network, ("::1/128", "fc00::/7")))

#: What is neither private nor anybody's: this network, protocol assignments, documentation, relays, benchmarks,
#: multicast, reserved, broadcast.
FORBIDDEN_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
        ),
    )
)
#: Everything else outside 2000::/3 as well. The first has Teredo, whose inner address is anybody's choice.
FORBIDDEN_6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))
UNICAST_6 = IPv6Network("2000::/3")

MAPPED = IPv6Network("::ffff:0:0/96")
NAT64 = IPv6Network("64:ff9b::/96")
SIX_TO_FOUR = IPv6Network("2002::/16")
_SIX_TO_FOUR_SHIFT = 80
_LOW_32 = 0xFFFF_FFFF


def kind_of(address: Address) -> Kind:
    """Say what an address is, whatever it is wrapped in."""
    inner = unwrapped(address)
    if isinstance(inner, IPv4Address):
        return _judged(inner, METADATA_4 + FORBIDDEN_4, PRIVATE_4)
    # With a zone an address is of one link only.
    if inner.scope_id is not None:
        return Kind.FORBIDDEN
    kind = _judged(inner, METADATA_6 + FORBIDDEN_6, PRIVATE_6)
    return Kind.FORBIDDEN if kind is Kind.PUBLIC and inner not in UNICAST_6 else kind


def unwrapped(address: Address) -> Address:
    """Return the IPv4 address that a mapped, NAT64 or 6to4 address leads to; any other address itself.

    NAT64 prefixes of a network's own (64:ff9b:1::/48) are not unwrapped: where in them the address stands is that
    network's choice, and they lie outside global unicast.
    """
    if isinstance(address, IPv6Address) and address.scope_id is None:
        if address in MAPPED or address in NAT64:
            return IPv4Address(int(address) & _LOW_32)
        if address in SIX_TO_FOUR:
            return IPv4Address(int(address) >> _SIX_TO_FOUR_SHIFT & _LOW_32)
    return address


def may_reach(address: str, *, allow_private: bool) -> bool:
    """Say whether a webhook may reach an address; what is no address, never.

    Args:
        address: as a resolver or a socket writes it.
        allow_private: whether the operator allows private addresses.
    """
    try:
        kind = kind_of(ip_address(address))
    except ValueError:
        return False
    return kind is Kind.PUBLIC or (allow_private and kind is Kind.PRIVATE)


def _judged(
    address: Address,
    forbidden: tuple[IPv4Network, ...] | tuple[IPv6Network, ...],
    private: tuple[IPv4Network, ...] | tuple[IPv6Network, ...],
) -> Kind:
    if any(address in network for network in forbidden):
        return Kind.FORBIDDEN
    return Kind.PRIVATE if any(address in network for network in private) else Kind.PUBLIC
