"""A request with an API key arrives: whose key it is, and whether it is still within the rate (decisions §4, §7)."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from toolgate_service.hotpath.rates import Rate, Surface
from toolgate_service.hotpath.standing import Standing
from toolgate_service.plans import Plan


class Ask(NamedTuple):
    """What is asked about an arriving request.

    Attributes:
        key_digest: of its API key.
        surface: which rate it counts for.
        agent_id: the agent it names; empty for none.
        action: the action it names; empty for none.
    """

    key_digest: str
    surface: Surface
    agent_id: str = ""
    action: str = ""


#: what is true of it, and where its organization's rate now stands; no rate for an organization that is not active
Arrived: TypeAlias = tuple[Standing, Rate | None]


@runtime_checkable
class ArrivesSoon(Protocol):
    """Reads what is true of requests together with others, so that an answer is waited for without a task."""

    def arrive_soon(self, ask: Ask) -> "asyncio.Future[Arrived | None]":
        """Return what is true of a request, and count it; None for a key that is unknown or revoked."""


def requests_a_minute(standing: Standing, plans: Mapping[str, Plan]) -> int:
    """Return how many requests of each surface an organization may send a minute.

    Args:
        standing: of one of its requests.
        plans: all plans by name.
    """
    return standing.requests_per_minute or plans[standing.plan].requests_per_minute
