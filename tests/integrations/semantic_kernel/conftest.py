"""The tools are functions of a plugin, which is called `bank`."""

import pytest


@pytest.fixture
def scene_prefix() -> str:
    return "bank"
