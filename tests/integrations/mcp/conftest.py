"""The tools are a server's, which is called `bank`."""

import pytest


@pytest.fixture
def scene_prefix() -> str:
    return "bank"
