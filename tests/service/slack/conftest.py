"""A gateway whose Slack webhooks may reach this machine, where a receiver stands in for Slack."""

from collections.abc import Iterator

import pytest
from support.gateway import LiveGateway
from support.people import Board, board
from support.receiver import Answer, Receiver


@pytest.fixture(scope="package")
def teller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway of this package."""
    env = {"TOOLGATE_WEBHOOKS_ALLOW_PRIVATE": "true", "TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE": "1000000"}
    with LiveGateway(tmp_path_factory.mktemp("slack"), env=env) as gateway:
        yield gateway


@pytest.fixture
def slack() -> Iterator[Receiver]:
    """Stands in for hooks.slack.com: takes everything."""
    with Receiver(default=Answer(body=b"ok")) as made:
        yield made


@pytest.fixture
def two(teller: LiveGateway) -> Iterator[Board]:
    """Two admins, and an agent whose refunds one of them must approve."""
    with board(teller, people=2) as made:
        yield made
