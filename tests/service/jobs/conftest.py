"""A gateway whose old rows are pruned by the test itself."""

from collections import Counter
from collections.abc import Iterator

import pytest
from support.databases import finished
from support.gateway import LiveGateway, Owner
from support.upkeep import Prune

from toolgate_service.core.plans import BUILT_IN
from toolgate_service.db.database import open_database
from toolgate_service.decisions.service import ContextRetention
from toolgate_service.maintenance import prune


@pytest.fixture(scope="module")
def attic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway on the free plan that does no upkeep while a test runs."""
    env = {"TOOLGATE_MAINTENANCE_INTERVAL_SECONDS": "21600"}
    with LiveGateway(tmp_path_factory.mktemp("attic"), plan="free", env=env) as gateway:
        yield gateway


@pytest.fixture
def keeper(attic: LiveGateway) -> Iterator[Owner]:
    """An organization of one test's own."""
    with Owner(attic.url, organization="Keeper") as owner:
        yield owner


@pytest.fixture
def pruned(attic: LiveGateway) -> Prune:
    """Prune the gateway's database, as the operator's command does."""

    def work(
        *, batch: int = 100, force: bool = False, contexts: ContextRetention | None = None
    ) -> Counter[str]:
        async def once() -> Counter[str]:
            database = open_database(attic.database_url)
            await database.start()
            try:
                return await prune(database, BUILT_IN, batch, contexts, force=force)
            finally:
                await database.close()

        return finished(once())

    return work
