"""Fixtures for webhooks: an outbox, a gateway and a receiver."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.databases import database_url
from support.gateway import LiveGateway, Owner
from support.outbox import Outbox
from support.receiver import Receiver

from toolgate_service.db.database import open_database


@pytest.fixture
async def outbox(tmp_path: Path) -> AsyncIterator[Outbox]:
    """Database for one test, with an organization on the pro plan."""
    database = open_database(database_url(tmp_path))
    await database.start()
    box = Outbox(database)
    await box.found("pro")
    yield box
    await database.close()


@pytest.fixture(scope="package")
def teller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """Gateway whose webhooks may reach this machine."""
    env = {"TOOLGATE_WEBHOOKS_ALLOW_PRIVATE": "true"}
    with LiveGateway(tmp_path_factory.mktemp("teller"), env=env) as gateway:
        yield gateway


@pytest.fixture
def told(teller: LiveGateway) -> Iterator[Owner]:
    """Organization for one test, whose webhooks may reach this machine."""
    with Owner(teller.url, organization="Told") as owner:
        yield owner


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Receiver that accepts every event."""
    with Receiver() as made:
        yield made
