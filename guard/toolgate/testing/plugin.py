"""The pytest plugin: the fixture `fake_gateway`, and the switch against calls to real gateways.

Loaded in every test run where Toolgate is installed, so it loads nothing before it is used.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from toolgate.testing.blocking import Block
    from toolgate.testing.gateway import FakeGateway

__all__ = [
    "fake_gateway",
    "pytest_addoption",
    "pytest_configure",
    "pytest_runtest_call",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
    "pytest_unconfigure",
]

_SWITCH: Final = "toolgate_block_network"
_HELP: Final = "an error for any call to a real Toolgate gateway; toolgate_block_network(False) lifts it"
_block: Final[pytest.StashKey[Block]] = pytest.StashKey()


@pytest.fixture
def fake_gateway() -> Iterator[FakeGateway]:
    """A gateway in memory, behind `toolgate.guarded`, `action` and `resume` for the length of the test.

    It blocks what it was not told to allow or hold.
    """
    from toolgate.default import default_is
    from toolgate.testing.gateway import FakeGateway

    gateway = FakeGateway()
    with gateway.guard() as guard, default_is(guard):
        yield gateway


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the switch."""
    parser.addini(_SWITCH, f"make it {_HELP}", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Begin to block, where the whole run is to: collecting may call as well."""
    config.addinivalue_line("markers", f"{_SWITCH}(on=True): {_HELP}")
    if config.getini(_SWITCH):
        from toolgate.testing.blocking import Block

        config.stash[_block] = block = Block()
        block.begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what the whole run had."""
    block = config.stash.get(_block, None)
    if block is not None:
        block.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Block while a test is set up, if it is to."""
    return (yield from _watched(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Block while a test runs, if it is to."""
    return (yield from _watched(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Block while a test is torn down, if it is to."""
    return (yield from _watched(item))


def _watched(item: pytest.Item) -> Generator[None, object, object]:
    marker = item.get_closest_marker(_SWITCH)
    whole = item.config.stash.get(_block, None)
    if marker is None and whole is None:
        return (yield)
    from toolgate.testing.blocking import Block

    on = True if marker is None else bool((*marker.args, *marker.kwargs.values(), True)[0])
    block = Block(blocks=on)
    block.begin()
    try:
        result = yield
    finally:
        block.end()
    # A call that was swallowed, or made by another thread, fails the test all the same.
    block.demand_none()
    return result
