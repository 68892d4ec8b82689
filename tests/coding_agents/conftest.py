"""An agent that may use OpenCode's own tools, as the gateway says; the program is named by the environment."""

import os
from collections.abc import Iterator

import pytest
from support.frameworks.harness import Scene
from support.gateway import Owner

from toolgate import Guard


@pytest.fixture
def scene(owner: Owner) -> Iterator[Scene]:
    agent_id = owner.agent()
    for action, fields in (
        ("tools.bash", {}),
        ("tools.task", {}),
        ("tools.write", {"requires_approval": True}),
        ("bank.pay", {}),
        ("bank.refund", {}),
    ):
        owner.permit(agent_id, action, **fields)
    with Guard(owner.url, owner.key, agent_id) as guard:
        yield Scene(owner, guard, agent_id)


@pytest.fixture
def program() -> str:
    return os.environ["TOOLGATE_TEST_OPENCODE"]
