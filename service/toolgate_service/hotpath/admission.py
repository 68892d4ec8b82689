"""Who may use the SDK surface: key, then organization, then rate (decisions §4)."""

from starlette.types import Scope

from toolgate_service.errors import ApiError
from toolgate_service.gateway import Gateway
from toolgate_service.hotpath.http import add_headers
from toolgate_service.hotpath.rates import Surface
from toolgate_service.hotpath.standing import Standing


async def admit(scope: Scope, standing: Standing | None, gateway: Gateway, surface: Surface) -> Standing:
    """Return the standing of a request that may go on; count it.

    Raises:
        ApiError: 401 for an unknown or revoked key and for an inactive organization, 429 beyond the rate.
    """
    if standing is None:
        raise ApiError(401, "Invalid API key")
    if not standing.organization_is_active:
        raise ApiError(401, "Organization is not active")
    limit = requests_a_minute(standing, gateway)
    rate = await gateway.rates.count(standing.organization_id, f"{standing.environment}/{surface}", limit)
    add_headers(scope, whose(standing) | rate.headers())
    if rate.exceeded:
        raise rate.refusal()
    return standing


def requests_a_minute(standing: Standing, gateway: Gateway) -> int:
    """Return how many requests of each surface an organization may send a minute."""
    return standing.requests_per_minute or gateway.plans[standing.plan].requests_per_minute


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
