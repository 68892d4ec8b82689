"""Somebody who administers an organization, at a browser."""

from collections.abc import Iterator

import pytest
from support.console import Reader
from support.gateway import LiveGateway, Owner
from support.team import Colleague


@pytest.fixture(scope="module")
def maya(acme: Owner) -> Iterator[Reader]:
    """The admin of the module's organization, signed in."""
    with Reader.of(acme.url, acme.email) as reader:
        yield reader


@pytest.fixture(scope="module")
def viewer(acme: Owner) -> Iterator[Reader]:
    """A colleague who may look."""
    with Colleague(acme, "viewer") as colleague, Reader.of(acme.url, colleague.email) as reader:
        yield reader


@pytest.fixture
def stranger(gateway: LiveGateway) -> Iterator[Reader]:
    """Nobody: not signed in."""
    with Reader(gateway.url) as reader:
        yield reader


@pytest.fixture(scope="module")
def refunder(acme: Owner) -> str:
    """An agent whose refunds a person must approve."""
    agent = acme.agent("refund-bot")
    acme.permit(agent, "stripe.refund", requires_approval=True, max_amount=500)
    return agent
