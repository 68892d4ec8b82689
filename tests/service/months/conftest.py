"""A gateway on PostgreSQL whose months are made and dropped by the test itself."""

from collections.abc import Iterator

import pytest
from support.gateway import LiveGateway, Owner


@pytest.fixture(scope="module")
def calendar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway that does no upkeep while a test runs."""
    env = {"TOOLGATE_MAINTENANCE_INTERVAL_SECONDS": "21600"}
    with LiveGateway(tmp_path_factory.mktemp("calendar"), plan="enterprise", env=env) as gateway:
        yield gateway


@pytest.fixture
def keeper(calendar: LiveGateway) -> Iterator[Owner]:
    """An organization of one test's own."""
    with Owner(calendar.url, organization="Keeper") as owner:
        yield owner
