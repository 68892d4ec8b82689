"""Who may use the SDK surface: key, then organization, then where from, then rate (spec §5, decisions §4)."""

from starlette.types import Scope

from toolgate_service.errors import ApiError, StorageFault
from toolgate_service.gateway import Gateway
from toolgate_service.hotpath.arrivals import Arrived, Ask
from toolgate_service.hotpath.http import add_headers, peer_of
from toolgate_service.hotpath.rates import Rate
from toolgate_service.hotpath.standing import Standing
from toolgate_service.organizations import networks
from toolgate_service.tracing.spans import span

#: the scope's key under which a request that was asked about already brings what was answered, or why nothing was
ARRIVED = "toolgate.arrived"


async def admit(scope: Scope, gateway: Gateway, ask: Ask) -> Standing:
    """Return the standing of a request that may go on; count it.

    Args:
        scope: the request's.
        gateway: the gateway.
        ask: what is asked about it.

    Raises:
        ApiError: 401 for an unknown or revoked key and for an inactive organization, 403 from outside of its allowed
            networks, 429 beyond the rate.
        StorageFault: the database did not answer.
    """
    arrived: Arrived | StorageFault | None
    with span("toolgate.gateway.arrive"):
        arrived = scope.pop(ARRIVED) if ARRIVED in scope else await gateway.reader.arrive(ask)
    if isinstance(arrived, StorageFault):
        # Asked once more, a silent database would keep the caller waiting twice.
        raise StorageFault(str(arrived))
    standing, rate = known(arrived)
    add_headers(scope, whose(standing) | rate.headers())
    if standing.ip_allow_list is not None:
        peer = peer_of(scope)
        if not networks.admits(standing.ip_allow_list, peer):
            await gateway.strangers.tell(standing, peer)
            raise networks.elsewhere(peer)
    if rate.exceeded:
        raise rate.refusal()
    return standing


def known(arrived: Arrived | None) -> tuple[Standing, Rate]:
    """Return what is true of a request, and where its rate stands.

    Raises:
        ApiError: 401 for an unknown or revoked key and for an inactive organization.
    """
    if arrived is None:
        raise ApiError(401, "Invalid API key")
    standing, rate = arrived
    if rate is None:
        raise ApiError(401, "Organization is not active")
    return standing, rate


def whose(standing: Standing) -> dict[bytes, bytes]:
    """Return the headers that say whose a key is: what was written down for them goes to nobody else."""
    return {
        b"x-toolgate-organization": standing.organization_id.encode(),
        b"x-toolgate-environment": standing.environment.encode(),
    }


def given_key(key: str | None) -> str:
    """Return the key of the ``X-API-Key`` header.

    Raises:
        ApiError: 401, there is none.
    """
    if not key:
        raise ApiError(401, "Missing API key")
    return key
