"""A gateway whose operator may create scratch organizations."""

from collections.abc import Iterator

import httpx
import pytest
from support.gateway import LiveGateway
from support.leaks import KNOWN

TOKEN = "an operator's token for tests"
KNOWN.learn(TOKEN)


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway with an operator's token, whose background jobs run every second."""
    env = {"TOOLGATE_OPERATOR_TOKEN": TOKEN, "TOOLGATE_APPROVAL_WATCH_SECONDS": "1"}
    with LiveGateway(tmp_path_factory.mktemp("operated"), env=env) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def operator(operated: LiveGateway) -> Iterator[httpx.Client]:
    """A client with the operator's token."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url=operated.url, headers=headers, timeout=30) as client:
        yield client
