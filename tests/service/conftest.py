"""Gateways that many modules share: starting one costs two seconds, an organization a quarter of one."""

from collections.abc import Iterator

import httpx
import pytest
from support.conformity import every_answer_conforms
from support.gateway import LiveGateway, Owner


@pytest.fixture(scope="session", autouse=True)
def documented_answers() -> Iterator[None]:
    """Whatever any test hears from a gateway, the OpenAPI document has announced."""
    with every_answer_conforms():
        yield


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway on the enterprise plan; nobody stops or starves it, and its users may ask as often as tests do."""
    env = {"TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE": "1000000"}
    with LiveGateway(tmp_path_factory.mktemp("shared-gateway"), env=env) as gateway:
        yield gateway


@pytest.fixture(scope="session")
def free_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway whose new organizations get the free plan."""
    with LiveGateway(tmp_path_factory.mktemp("free-gateway"), plan="free") as gateway:
        yield gateway


@pytest.fixture(scope="session")
def anyone(gateway: LiveGateway) -> Iterator[httpx.Client]:
    """A client without a credential."""
    with httpx.Client(base_url=gateway.url, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def acme(gateway: LiveGateway) -> Iterator[Owner]:
    """An organization that a module's tests share, each with agents of its own."""
    with Owner(gateway.url) as owner:
        yield owner


@pytest.fixture(scope="session")
def rival(gateway: LiveGateway) -> Iterator[Owner]:
    """Another organization on the same gateway."""
    with Owner(gateway.url, organization="Rival") as owner:
        yield owner


@pytest.fixture
def newcomer(gateway: LiveGateway) -> Iterator[Owner]:
    """An organization of one test's own."""
    with Owner(gateway.url, organization="Newcomer") as owner:
        yield owner


@pytest.fixture
def frugal(free_gateway: LiveGateway) -> Iterator[Owner]:
    """An organization of one test's own, on the free plan."""
    with Owner(free_gateway.url, organization="Frugal") as owner:
        yield owner


@pytest.fixture
def bot(acme: Owner) -> str:
    """A new agent of the shared organization."""
    return acme.agent()
