"""Policy enforcement points with the policies of the published scenarios."""

from collections.abc import Iterator

import pytest
from support.authzen import Pep, set_up
from support.gateway import LiveGateway, Owner


@pytest.fixture(scope="module")
def pep(gateway: LiveGateway) -> Iterator[Pep]:
    """A client in an organization with the policy of the certification scenario."""
    with Owner(gateway.url) as owner, set_up(owner, "certification.policy.yaml") as client:
        yield client


@pytest.fixture
def own(newcomer: Owner) -> Iterator[Pep]:
    """A client in an organization of one test's own, without a policy."""
    with Pep(newcomer, newcomer.agent()) as client:
        yield client
