"""Two gateways on one database."""

from collections.abc import Iterator

import pytest
from support.crowd import together
from support.gateway import LiveGateway


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveGateway, LiveGateway]]:
    """Two gateways, started at the same moment on one database."""
    folder = tmp_path_factory.mktemp("pair")
    # A full run sends thousands of requests as one user within a minute.
    env = {"TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE": "1000000"}
    first, second = LiveGateway(folder, env=env), LiveGateway(folder, env=env)
    try:
        together(first.start, second.start)
        yield first, second
    finally:
        first.stop()
        second.stop()
