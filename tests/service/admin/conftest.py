"""A gateway that an operator looks after while it runs."""

from collections.abc import Iterator

import pytest
from support.gateway import LiveGateway, Owner
from support.provider import PLAN_FILE, SECRET


@pytest.fixture(scope="session")
def tended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway whose organizations begin on the free plan, and that takes the payment provider's events."""
    folder = tmp_path_factory.mktemp("tended")
    (folder / "plans.toml").write_text(PLAN_FILE)
    env = {
        "TOOLGATE_PLANS_FILE": str(folder / "plans.toml"),
        "TOOLGATE_PROVIDER_WEBHOOK_SECRET": SECRET,
    }
    with LiveGateway(folder, plan="free", env=env) as gateway:
        yield gateway


@pytest.fixture
def tenant(tended: LiveGateway) -> Iterator[Owner]:
    """An organization of one test's own."""
    with Owner(tended.url, organization="Tenant") as owner:
        yield owner
