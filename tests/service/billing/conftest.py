"""A gateway that takes the payment provider's events, and customers of it."""

from collections.abc import Iterator

import pytest
from support.gateway import LiveGateway, Owner
from support.provider import fresh, taking_events
from support.tables import execute


@pytest.fixture(scope="session")
def billing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway whose organizations begin on the free plan and may pay."""
    with taking_events(tmp_path_factory.mktemp("billing")) as gateway:
        yield gateway


@pytest.fixture
def payer(billing: LiveGateway) -> Iterator[Owner]:
    """An organization on the free plan."""
    with Owner(billing.url, organization="Payer") as owner:
        yield owner


@pytest.fixture
def customer(billing: LiveGateway, payer: Owner) -> str:
    """The provider's customer to whom an operator linked that organization."""
    customer = fresh("cus")
    statement = "UPDATE organizations SET provider_customer_id = ? WHERE id = ?"
    assert execute(billing, statement, customer, payer.user["organization_id"]) == 1
    return customer
