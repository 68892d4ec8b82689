"""Admission to the SDK surface from the headers alone: key, organization, address, rate (spec §5, decisions §4)."""

from typing import NamedTuple

from starlette.types import Scope

from toolgate_service.errors import ApiError, StorageFault
from toolgate_service.gateway import Gateway
from toolgate_service.hotpath.arrivals import Arrived, Ask
from toolgate_service.hotpath.http import add_headers, header_of, peer_of
from toolgate_service.hotpath.rates import Rate, Surface
from toolgate_service.hotpath.standing import Standing
from toolgate_service.organizations import networks
from toolgate_service.organizations.keys import key_digest, may_be_key
from toolgate_service.tracing.spans import span

#: the scope's key for an `Early`, if the fast path has asked the database about the request already
ARRIVED = "toolgate.arrived"


class Early(NamedTuple):
    """What the fast path asked about a request, and the database's answer or failure."""

    ask: Ask
    arrived: Arrived | StorageFault | None


class Admitted(NamedTuple):
    """A request that was authenticated and counted.

    Attributes:
        ask: what the database was asked about it.
        standing: the answer.
    """

    ask: Ask
    standing: Standing

    async def standing_for(self, gateway: Gateway, agent_id: str, action: str = "") -> Standing:
        """Return the standing with the agent and the permission that the body names.

        Args:
            gateway: the gateway.
            agent_id: the agent.
            action: the action; empty if no permission is needed.

        Raises:
            ApiError: 401, the key was revoked or the organization deactivated meanwhile.
        """
        if (self.ask.agent_id, self.ask.action) == (agent_id, action):
            return self.standing
        standing = await gateway.reader.standing(self.ask.key_digest, agent_id, action)
        if standing is None:
            raise _invalid_key()
        if not standing.organization_is_active:
            raise _inactive()
        return standing


async def admit(scope: Scope, gateway: Gateway, surface: Surface) -> Admitted:
    """Authenticate a request by its headers, and count it. Nothing of its body is needed.

    Args:
        scope: the request's.
        gateway: the gateway.
        surface: the rate that it counts for.

    Raises:
        ApiError: 401 for a missing, unknown or revoked key and for an inactive organization, 403 from outside of its
            allowed networks, 429 beyond the rate or for the failures of an address.
        StorageFault: the database did not answer.
    """
    peer = peer_of(scope)
    key = given_key(header_of(scope, b"x-api-key"))
    client = (key_digest(key), peer)
    try:
        admitted = await _admitted(scope, gateway, Ask(client[0], surface), key, peer)
    except ApiError as error:
        gateway.recent_keys.discard(client)
        if error.status_code == _UNAUTHORIZED:
            raise await gateway.auth_failures.reject(peer, error) from None
        raise
    gateway.recent_keys.add(client)
    return admitted


async def _admitted(scope: Scope, gateway: Gateway, ask: Ask, key: str, peer: str | None) -> Admitted:
    if not key:
        raise ApiError(_UNAUTHORIZED, "Missing API key")
    early: Early | None = scope.pop(ARRIVED, None)
    if early is not None:
        ask, arrived = early
    elif may_be_key(key):
        with span("toolgate.gateway.arrive"):
            arrived = await gateway.reader.arrive(ask)
    else:
        arrived = None
    if isinstance(arrived, StorageFault):
        # Asked once more, a silent database would keep the caller waiting twice.
        raise StorageFault(str(arrived))
    standing, rate = known(arrived)
    add_headers(scope, tenant_headers(standing) | rate.headers())
    if standing.ip_allow_list is not None and not networks.admits(standing.ip_allow_list, peer):
        await gateway.strangers.tell(standing, peer)
        raise networks.elsewhere(peer)
    if rate.exceeded:
        raise rate.refusal()
    return Admitted(ask, standing)


def known(arrived: Arrived | None) -> tuple[Standing, Rate]:
    """Return what is true of a request, and where its rate stands.

    Raises:
        ApiError: 401 for an unknown or revoked key and for an inactive organization.
    """
    if arrived is None:
        raise _invalid_key()
    standing, rate = arrived
    if rate is None:
        raise _inactive()
    return standing, rate


def tenant_headers(standing: Standing) -> dict[bytes, bytes]:
    """Return the headers with the key's organization and environment: an outbox sends its entries to no other."""
    return {
        b"x-toolgate-organization": standing.organization_id.encode(),
        b"x-toolgate-environment": standing.environment.encode(),
    }


def given_key(header: str | None) -> str:
    """Return the key in an ``X-API-Key`` header without the spaces and tabs around it; empty for none."""
    # Latin-1 has further white space, such as a no-break space, which is part of a header's value.
    return (header or "").strip(" \t")


_UNAUTHORIZED = 401


def _invalid_key() -> ApiError:
    return ApiError(_UNAUTHORIZED, "Invalid API key")


def _inactive() -> ApiError:
    return ApiError(_UNAUTHORIZED, "Organization is not active")
