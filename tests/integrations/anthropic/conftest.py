"""The scene of the behaviour suite, and a scripted Messages API, for what only the Anthropic SDK has."""

from collections.abc import Iterator

import pytest
from anthropic import Anthropic
from support.frameworks.harness import Scene
from support.frameworks.messages_api import MessagesAPI
from support.gateway import Owner

from toolgate import Guard


@pytest.fixture
def scene(owner: Owner) -> Iterator[Scene]:
    agent_id = owner.agent()
    for tool, fields in (("look", {}), ("burn", {}), ("pay", {"requires_approval": True})):
        owner.permit(agent_id, f"tools.{tool}", **fields)
    with Guard(owner.url, owner.key, agent_id) as guard:
        yield Scene(owner, guard, agent_id)


@pytest.fixture
def api() -> Iterator[MessagesAPI]:
    with MessagesAPI() as api:
        yield api


@pytest.fixture
def client(api: MessagesAPI) -> Iterator[Anthropic]:
    with Anthropic(api_key="scripted", base_url=api.url, max_retries=0) as client:
        yield client
