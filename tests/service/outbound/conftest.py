"""Fixtures for requests to addresses that customers configure."""

from collections.abc import Iterator

import pytest
from support.receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Receiver that accepts every request."""
    with Receiver() as made:
        yield made
