"""A gateway that `toolgate verify` can test completely."""

from collections.abc import Iterator

import pytest
from support.gateway import LiveGateway
from support.verifying import ENV


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway with an operator's token."""
    with LiveGateway(tmp_path_factory.mktemp("operated"), env=ENV) as gateway:
        yield gateway
