"""pytest plugin: the fixture `fake_gateway`, and the option that forbids calls to real gateways.

pytest loads this module in every test run if Toolgate is installed. Other modules of Toolgate are therefore imported
only when they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from toolgate.testing.fake import FakeGateway

__all__ = [
    "fake_gateway",
    "pytest_addoption",
    "pytest_configure",
    "pytest_runtest_call",
    "pytest_runtest_setup",
    "pytest_runtest_teardown",
    "pytest_unconfigure",
]

_OPTION: Final = "toolgate_block_network"
_HELP: Final = "fail tests that call a real Toolgate gateway; the marker toolgate_block_network(False) permits it for a test"
_CURE: Final = (
    "use the fixture fake_gateway, or FakeGateway().guard(), or FakeGateway().replacing(guard); "
    "if the call is intended, mark the test with @pytest.mark.toolgate_block_network(False)"
)


class _NetworkBlock:
    """Makes a test fail that sends requests to a real gateway, or uses a guard with invalid settings.

    The two problems are detected between the calls of `begin` and `end`.

    Args:
        is_active: If True, requests to real gateways are prevented. If False, they are permitted, even if the option
            for the whole test run prevents them.
    """

    def __init__(self, *, is_active: bool = True) -> None:
        self._is_active = is_active
        self._request_hook: Callable[[str], None] | None = None
        self._error_listener: Callable[[Exception], None] | None = None
        self._problems: list[str] = []

    def begin(self) -> None:
        from toolgate._http.transport import set_request_hook
        from toolgate._telemetry import set_setup_error_listener

        self._request_hook = set_request_hook(self._stop if self._is_active else None)
        self._error_listener = set_setup_error_listener(self._note if self._is_active else None)

    def end(self) -> None:
        from toolgate._http.transport import set_request_hook
        from toolgate._telemetry import set_setup_error_listener

        set_request_hook(self._request_hook)
        set_setup_error_listener(self._error_listener)

    def fail_on_problems(self) -> None:
        """Fail the test if a problem was recorded, even if the test caught the exception or a thread raised it."""
        if self._problems:
            pytest.fail(self._problems[0], pytrace=False)

    def _note(self, error: Exception) -> None:
        self._problems.append(f"a Toolgate guard was used without a working configuration: {error}; {_CURE}")

    def _stop(self, url: str) -> None:
        problem = f"a real Toolgate gateway was called: {url!r}, which {_OPTION} forbids; {_CURE}"
        self._problems.insert(0, problem)
        # `pytest.fail` raises a `BaseException`: `except Exception` in the code of an agent does not catch it.
        pytest.fail(problem)


_block: Final[pytest.StashKey[_NetworkBlock]] = pytest.StashKey()


@pytest.fixture
def fake_gateway() -> Iterator[FakeGateway]:
    """Return a fake gateway that `toolgate.guarded`, `toolgate.action` and `toolgate.resume` use during the test.

    It denies every action that the test does not allow.
    """
    from toolgate._default import replace_default
    from toolgate.testing.fake import FakeGateway

    gateway = FakeGateway()
    with gateway.guard() as guard, replace_default(guard):
        yield gateway


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `toolgate_block_network` to pytest's configuration file."""
    parser.addini(_OPTION, _HELP, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; if the option is set, block the network during the whole run, including test collection."""
    config.addinivalue_line("markers", f"{_OPTION}(on=True): {_HELP}")
    if config.getini(_OPTION):
        config.stash[_block] = block = _NetworkBlock()
        block.begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Permit requests to real gateways again."""
    block = config.stash.get(_block, None)
    if block is not None:
        block.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Prevent requests to real gateways during the setup of a test."""
    return (yield from _blocked(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Prevent requests to real gateways during a test."""
    return (yield from _blocked(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Prevent requests to real gateways during the teardown of a test."""
    return (yield from _blocked(item))


def _blocked(item: pytest.Item) -> Generator[None, object, object]:
    marker = item.get_closest_marker(_OPTION)
    if marker is None and item.config.stash.get(_block, None) is None:
        return (yield)
    is_active = True if marker is None else bool((*marker.args, *marker.kwargs.values(), True)[0])
    block = _NetworkBlock(is_active=is_active)
    block.begin()
    try:
        result = yield
    finally:
        block.end()
    block.fail_on_problems()
    return result
