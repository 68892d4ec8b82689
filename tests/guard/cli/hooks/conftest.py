"""An agent that may use Claude Code's own tools, as the gateway says, and somebody at the terminal."""

from collections.abc import Iterator

import pytest
from support.frameworks.harness import Scene
from support.gateway import Owner

from toolgate import Guard


@pytest.fixture
def scene(owner: Owner) -> Iterator[Scene]:
    agent_id = owner.agent()
    for tool, fields in (("Bash", {}), ("Write", {"requires_approval": True})):
        owner.permit(agent_id, f"tools.{tool}", **fields)
    with Guard(owner.url, owner.key, agent_id) as guard:
        yield Scene(owner, guard, agent_id)
