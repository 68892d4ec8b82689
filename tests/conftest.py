"""Fixtures that every kind of test may use."""

from collections.abc import Iterator

import pytest
from support.compiled import compiled_once
from support.gateway import LiveGateway, Owner

__all__ = ["compiled_once", "live_gateway", "owner"]


@pytest.fixture(scope="module")
def live_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway on the enterprise plan, shared by a module's tests: each registers its own organization."""
    with LiveGateway(tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway


@pytest.fixture
def owner(live_gateway: LiveGateway) -> Iterator[Owner]:
    """The admin of a fresh organization."""
    with Owner(live_gateway.url) as owner:
        yield owner
