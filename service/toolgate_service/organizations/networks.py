"""The networks from which an organization's API keys work (spec §5): read, written in one way, and looked an address up in.

An address is judged as `web.proxies` reads it: an IPv4 one stays one when it arrives over IPv6.
"""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_interface, ip_network

from toolgate_service import exact_json
from toolgate_service.errors import ApiError
from toolgate_service.web.proxies import Network, read_address

#: of one organization
MOST = 100
#: no address or network is written longer
_LONGEST = 64
_EXAMPLES = "write for instance '203.0.113.7', '10.0.0.0/8' or '2001:db8::/32'"
#: where IPv6 writes an IPv4 address (RFC 4291 §2.5.5.2)
_MAPPED = 96


def canonical(entries: Sequence[str]) -> list[str]:
    """Return networks as they are kept: each once and in the order given, a single address without a length.

    Raises:
        ValueError: an entry is not an address or network, or there are more than `MOST`; the message contains the value and the fix.
    """
    if len(entries) > MOST:
        raise ValueError(f"are {len(entries)} networks; at most {MOST} are allowed, so name larger ones")
    return list(dict.fromkeys(_written(_network(entry)) for entry in entries))


def stored(networks: Sequence[str]) -> str | None:
    """Return canonical networks as the organization's row has them; null stands for everywhere."""
    return exact_json.dumps(list(networks)) if networks else None


def listed(kept: str | None) -> list[str]:
    """Return the networks that a row has; none for everywhere."""
    return [] if kept is None else [str(one) for one in _list(kept)]


@lru_cache(1024)
def admits(kept: str, address: str | None) -> bool:
    """Say whether an organization's keys work from an address; from one that is not known, they do not.

    It depends on nothing but what it is given, so that it is remembered: looking through a hundred networks takes longer
    than a check does.

    Args:
        kept: the networks as the row has them, read at this very request.
        address: from which the request came.
    """
    found = None if address is None else read_address(address)
    return found is not None and any(found in network for network in _networks(kept))


def elsewhere(address: str | None) -> ApiError:
    """Return the refusal of a key that is used from somewhere else."""
    found = None if address is None else read_address(address)
    seen = "an address that the gateway cannot see" if found is None else repr(str(found))
    return ApiError(
        403,
        f"API keys of this organization do not work from {seen}: it is in none of the allowed networks; call from one of "
        "them, or have an admin add it to PUT /api/organization/allowed-networks",
    )


@lru_cache(256)
def _networks(kept: str) -> tuple[Network, ...]:
    return tuple(ip_network(str(one)) for one in _list(kept))


def _list(kept: str) -> Sequence[object]:
    found = exact_json.loads_own(kept)
    if not isinstance(found, list):
        raise ValueError("the allowed networks of an organization are no list")  # noqa: TRY004 - as for its entries
    return found


def _network(entry: str) -> Network:
    text = entry.strip()
    shown = repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
    # A zone means nothing on another machine.
    if "%" in text or len(text) > _LONGEST:
        raise ValueError(f"{shown} is no address or network; {_EXAMPLES}")
    try:
        within = ip_interface(text)
    except ValueError:
        raise ValueError(f"{shown} is no address or network; {_EXAMPLES}") from None
    if within.ip != within.network.network_address:
        raise ValueError(
            f"{shown} is an address within a network; write {str(within.network)!r} for the network, "
            f"or {str(within.ip)!r} for the address alone"
        )
    return _unmapped(within.network)


def _unmapped(network: Network) -> Network:
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    if mapped is None or network.prefixlen < _MAPPED:
        return network
    return IPv4Network((mapped, network.prefixlen - _MAPPED))


def _written(network: Network) -> str:
    alone = network.prefixlen == network.max_prefixlen
    return str(network.network_address) if alone else str(network)
