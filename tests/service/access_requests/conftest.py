"""A client of the profile whose agent needs an approval for refunds."""

from collections.abc import Iterator

import pytest
from support.gateway import Owner
from support.requester import Requester


@pytest.fixture
def pep(newcomer: Owner) -> Iterator[Requester]:
    agent = newcomer.agent()
    newcomer.permit(agent, "stripe.refund", requires_approval=True)
    client = Requester(newcomer, agent)
    yield client
    client.close()
