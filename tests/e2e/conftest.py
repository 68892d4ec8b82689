"""A guard that talks to a live gateway."""

from collections.abc import Iterator

import pytest
from support.gateway import LiveGateway, Owner

from toolgate import Guard


@pytest.fixture
def agent_id(owner: Owner) -> str:
    """An agent that may do nothing yet."""
    return owner.agent()


@pytest.fixture
def guard(live_gateway: LiveGateway, owner: Owner, agent_id: str) -> Iterator[Guard]:
    """A guard for that agent."""
    with Guard(url=live_gateway.url, api_key=owner.key, agent_id=agent_id) as guard:
        owner.guards.append(guard)
        yield guard
