"""Two gateways on one database."""

from collections.abc import Iterator

import pytest
from support.crowd import together
from support.gateway import LiveGateway


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveGateway, LiveGateway]]:
    """Two gateways, started at the same moment on one database."""
    folder = tmp_path_factory.mktemp("pair")
    first, second = LiveGateway(folder), LiveGateway(folder)
    try:
        together(first.start, second.start)
        yield first, second
    finally:
        first.stop()
        second.stop()
