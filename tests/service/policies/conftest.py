"""A new organization for each test, because a policy contains everything of an environment."""

from collections.abc import Iterator

import pytest
from support.gateway import LiveGateway, Owner


@pytest.fixture
def acme(gateway: LiveGateway) -> Iterator[Owner]:
    """A new organization."""
    with Owner(gateway.url) as owner:
        yield owner
