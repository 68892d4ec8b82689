"""IP allowlist of an organization: the networks from which its API keys may be used.

An IPv4-mapped IPv6 address such as ``::ffff:192.0.2.1`` is compared as the IPv4 address.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_interface, ip_network

from toolgate_service.audit import service as audit
from toolgate_service.context import AuthContext
from toolgate_service.core import strict_json
from toolgate_service.core.addresses import Network, read_address
from toolgate_service.core.errors import ApiError
from toolgate_service.db.database import Database

#: maximum number of networks per organization
MAX_NETWORKS = 100
_MAX_TEXT_LENGTH = 64
_EXAMPLES = "write for instance '203.0.113.7', '10.0.0.0/8' or '2001:db8::/32'"
#: prefix length in bits of ``::ffff:0:0/96``, the network of the IPv4-mapped IPv6 addresses (RFC 4291)
_MAPPED_PREFIX = 96


def normalize_networks(entries: Sequence[str]) -> list[str]:
    """Return the networks in canonical form, in the given order and without duplicates.

    A network of a single address is returned as that address, without a prefix length.

    Raises:
        ValueError: An entry is not an address or network, or there are more than `MAX_NETWORKS` entries. The message
            contains the value and the fix.
    """
    if len(entries) > MAX_NETWORKS:
        raise ValueError(
            f"are {len(entries)} networks; at most {MAX_NETWORKS} are allowed, so name larger ones"
        )
    return list(dict.fromkeys(_to_text(_network(entry)) for entry in entries))


def serialize_networks(networks: Sequence[str]) -> str | None:
    """Return the networks as JSON for the database. An empty list becomes None, which allows every address."""
    return strict_json.dumps(list(networks)) if networks else None


def load_networks(stored: str | None) -> list[str]:
    """Return the networks from their JSON in the database. None becomes an empty list, which allows every address."""
    return [] if stored is None else [str(one) for one in _load_list(stored)]


@lru_cache(1024)
def is_allowed(stored: str, address: str | None) -> bool:
    """Return whether an address is in one of the stored networks; an unknown address never is.

    Results are cached, because comparing an address with 100 networks takes longer than the rest of a check.
    """
    found = None if address is None else read_address(address)
    return found is not None and any(found in network for network in _networks(stored))


def address_forbidden(address: str | None) -> ApiError:
    """Return the 403 error for an API key that is used from outside the allowed networks."""
    found = None if address is None else read_address(address)
    described = "an address that the gateway cannot see" if found is None else repr(str(found))
    return ApiError(
        403,
        f"API keys of this organization do not work from {described}: it is in none of the allowed networks; call from one of "
        "them, or have an admin add it to PUT /api/organization/allowed-networks",
    )


@lru_cache(256)
def _networks(stored: str) -> tuple[Network, ...]:
    return tuple(ip_network(str(one)) for one in _load_list(stored))


def _load_list(stored: str) -> Sequence[object]:
    found = strict_json.loads_own(stored)
    if not isinstance(found, list):
        raise ValueError("the allowed networks of an organization are no list")  # noqa: TRY004 - as for its entries
    return found


def _network(entry: str) -> Network:
    text = entry.strip()
    shown = repr(text if len(text) <= _MAX_TEXT_LENGTH else f"{text[:_MAX_TEXT_LENGTH]}…")
    # An IPv6 zone such as `%eth0` has a meaning on one machine only, so networks with a zone are rejected.
    if "%" in text or len(text) > _MAX_TEXT_LENGTH:
        raise ValueError(f"{shown} is no address or network; {_EXAMPLES}")
    try:
        interface = ip_interface(text)
    except ValueError:
        raise ValueError(f"{shown} is no address or network; {_EXAMPLES}") from None
    if interface.ip != interface.network.network_address:
        raise ValueError(
            f"{shown} is an address within a network; write {str(interface.network)!r} for the network, "
            f"or {str(interface.ip)!r} for the address alone"
        )
    return _unmapped(interface.network)


def _unmapped(network: Network) -> Network:
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    if mapped is None or network.prefixlen < _MAPPED_PREFIX:
        return network
    return IPv4Network((mapped, network.prefixlen - _MAPPED_PREFIX))


def _to_text(network: Network) -> str:
    is_single = network.prefixlen == network.max_prefixlen
    return str(network.network_address) if is_single else str(network)


FOREIGN_ADDRESS_EVENT = "organization.key_used_elsewhere"
#: minimum seconds between two audit events of an organization, so that a stolen key cannot flood the audit log
ALERT_INTERVAL = 60.0
#: maximum number of organizations for which the time of the next alert is remembered
_MAX_ORGANIZATIONS = 1_000
_MAX_ADDRESS_LENGTH = 45


class AllowlistAlerts:
    """Writer of audit events about API keys that are used from outside the allowed networks and may be stolen."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._next_alerts: OrderedDict[str, float] = OrderedDict()

    async def record(self, auth: AuthContext, peer: str | None) -> None:
        """Write an audit event, unless this process wrote one for the organization within `ALERT_INTERVAL`."""
        organization, moment = auth.organization_id, asyncio.get_running_loop().time()
        if moment < self._next_alerts.get(organization, moment):
            return
        # The next time is set before the first await, so that only one of several concurrent requests writes an event.
        self._next_alerts[organization] = moment + ALERT_INTERVAL
        self._next_alerts.move_to_end(organization)
        if len(self._next_alerts) > _MAX_ORGANIZATIONS:
            self._next_alerts.popitem(last=False)
        async with self._database.writing(organization) as session:
            audit.record_outside(
                session,
                organization,
                FOREIGN_ADDRESS_EVENT,
                resource_id=auth.key_id,
                environment=auth.environment,
                ip_address=peer[:_MAX_ADDRESS_LENGTH] if peer else None,
            )
