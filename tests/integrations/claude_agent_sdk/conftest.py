"""The scene's tools, before a gateway in memory: what the CLI does is what is tried here."""

from typing import Any, cast

import pytest
from support.frameworks.harness import Scene

from toolgate.testing import FakeGateway


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway(allow={"bank.look": {}, "bank.burn": {}, "bank.pay": {"max_amount": 100}})


@pytest.fixture
def scene(gateway: FakeGateway) -> Scene:
    # Nobody has to be asked behind it: the gateway is the test's own.
    return Scene(cast("Any", None), gateway.guard(), gateway.agent_id, "bank")
