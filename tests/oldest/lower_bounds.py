"""Checks of the environment that `make test-oldest-own` creates; other runs do not collect this file."""

from importlib.metadata import version
from importlib.util import find_spec

import pytest
from support.lower_bounds import lower_bound, own_requirements


def _release(text: str) -> tuple[int, ...]:
    """Return the numbers of a version without its trailing zeros, so that 0.22 equals 0.22.0."""
    numbers = [int(part) for part in text.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


@pytest.mark.parametrize("requirement", own_requirements())
def test_direct_dependency_is_installed_at_its_lower_bound(requirement: str) -> None:
    name, bound = lower_bound(requirement)
    assert _release(version(name)) == _release(bound)


def test_httpx_is_the_only_http_library() -> None:
    assert find_spec("httpx2") is None
