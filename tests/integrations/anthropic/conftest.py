"""A scripted Messages API, for what only the Anthropic SDK has."""

from collections.abc import Iterator

import pytest
from anthropic import Anthropic
from support.frameworks.messages_api import MessagesAPI


@pytest.fixture
def api() -> Iterator[MessagesAPI]:
    with MessagesAPI() as api:
        yield api


@pytest.fixture
def client(api: MessagesAPI) -> Iterator[Anthropic]:
    with Anthropic(api_key="scripted", base_url=api.url, max_retries=0) as client:
        yield client
