"""IP allowlist of an organization: the networks from which clients may use its API keys.

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

#: maximum number of networks in the allowlist of one organization
MAX_NETWORKS = 100
_MAX_TEXT_LENGTH = 64
_EXAMPLES = "write for example '203.0.113.7', '10.0.0.0/8' or '2001:db8::/32'"
#: prefix length in bits of ``::ffff:0:0/96``, the network of all IPv4-mapped IPv6 addresses (RFC 4291)
_MAPPED_PREFIX = 96


def normalize_networks(entries: Sequence[str]) -> list[str]:
    """Return the networks in canonical form, in the given order and without duplicates.

    A network that contains a single address is returned as this address, without a prefix length.

    Raises:
        ValueError: An entry is not an address or a network, or there are more than `MAX_NETWORKS` entries. The message
            contains the invalid value and the fix.
    """
    if len(entries) > MAX_NETWORKS:
        raise ValueError(
            f"contains {len(entries)} networks, but at most {MAX_NETWORKS} are allowed; combine them into larger networks"
        )
    return list(dict.fromkeys(_to_text(_network(entry)) for entry in entries))


def serialize_networks(networks: Sequence[str]) -> str | None:
    """Return the allowed networks as JSON for the database. An empty list becomes None: every address is allowed."""
    return strict_json.dumps(list(networks)) if networks else None


def load_networks(stored: str | None) -> list[str]:
    """Return the allowed networks from their JSON in the database. None becomes an empty list.

    None and an empty list both mean that every address is allowed.
    """
    return [] if stored is None else [str(one) for one in _load_list(stored)]


@lru_cache(1024)
def is_allowed(stored: str, address: str | None) -> bool:
    """Return whether one of the stored networks contains the address. The result is False for an unknown address.

    Results are cached, because comparing an address with 100 networks takes longer than the rest of a check request.
    """
    found = None if address is None else read_address(address)
    return found is not None and any(found in network for network in _networks(stored))


def address_forbidden(address: str | None) -> ApiError:
    """Return the 403 error for an API key that was used from an address outside the allowed networks."""
    found = None if address is None else read_address(address)
    described = "an unknown address" if found is None else repr(str(found))
    return ApiError(
        403,
        f"API keys of this organization may not be used from {described}, which is in none of the allowed networks; "
        "use one of these networks, or ask an admin to allow the address with PUT /api/organization/allowed-networks",
    )


@lru_cache(256)
def _networks(stored: str) -> tuple[Network, ...]:
    return tuple(ip_network(str(one)) for one in _load_list(stored))


def _load_list(stored: str) -> Sequence[object]:
    found = strict_json.loads_own(stored)
    if not isinstance(found, list):
        raise ValueError("the stored networks of an organization are not a JSON list")  # noqa: TRY004 - invalid entries raise ValueError too
    return found


def _network(entry: str) -> Network:
    text = entry.strip()
    shown = repr(text if len(text) <= _MAX_TEXT_LENGTH else f"{text[:_MAX_TEXT_LENGTH]}…")
    # Reject an IPv6 zone such as `%eth0`, because it is meaningful only on the machine that defines it.
    if "%" in text or len(text) > _MAX_TEXT_LENGTH:
        raise ValueError(f"{shown} is not an IP address or network; {_EXAMPLES}")
    try:
        interface = ip_interface(text)
    except ValueError:
        raise ValueError(f"{shown} is not an IP address or network; {_EXAMPLES}") from None
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
#: minimum time in seconds between two audit events of an organization, so that a client with a stolen key cannot flood
#: the audit log
ALERT_INTERVAL = 60.0
#: maximum number of organizations for which a process stores the time of the next allowed audit event
_MAX_ORGANIZATIONS = 1_000
_MAX_ADDRESS_LENGTH = 45


class AllowlistAlerts:
    """Writer of audit events about API keys that were used outside the allowed networks and may be stolen."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._next_alerts: OrderedDict[str, float] = OrderedDict()

    async def record(self, auth: AuthContext, peer: str | None) -> None:
        """Write an audit event about an API key that was used outside the allowed networks.

        Each gateway process writes at most one event per organization every `ALERT_INTERVAL` seconds.
        """
        organization, moment = auth.organization_id, asyncio.get_running_loop().time()
        if moment < self._next_alerts.get(organization, moment):
            return
        # Set the time of the next allowed event before the first await, so that only one of several concurrent requests
        # writes an event.
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
