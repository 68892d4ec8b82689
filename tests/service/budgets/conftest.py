"""Organizations and agents of the tests of budgets."""

from collections.abc import Iterator

import pytest
from support.budgets import ACTION
from support.gateway import LiveGateway, Owner


@pytest.fixture
def acme(gateway: LiveGateway) -> Iterator[Owner]:
    """A new organization for each test, because a budget applies to all its agents."""
    with Owner(gateway.url) as owner:
        yield owner


@pytest.fixture
def bot(acme: Owner) -> str:
    """An agent with the permission for `ACTION`."""
    agent = acme.agent()
    acme.permit(agent, ACTION)
    return agent
