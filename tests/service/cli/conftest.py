"""A gateway that an operator looks after while it runs."""

from collections.abc import Iterator

import pytest
from support.gateway import LiveGateway, Owner
from support.provider import taking_events


@pytest.fixture(scope="session")
def tended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway whose organizations begin on the free plan, and that takes the payment provider's events."""
    with taking_events(tmp_path_factory.mktemp("tended")) as gateway:
        yield gateway


@pytest.fixture
def tenant(tended: LiveGateway) -> Iterator[Owner]:
    """An organization of one test's own."""
    with Owner(tended.url, organization="Tenant") as owner:
        yield owner
