"""Fixtures that every kind of test may use, and the choice of a database for the gateways and of a framework."""

import gc
import os
import secrets
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support import choosing, collected, leaks
from support.frameworks import choosing as choosing_frameworks
from support.frameworks import results
from support.gateway import LiveGateway, Owner
from support.once import certificates_read_once, compiled_once

# Without a deadline: generating the first example loads tables, which takes long on a busy machine.
settings.register_profile("full", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("reduced", settings.get_profile("full"), max_examples=25)

__all__ = [
    "certificates_read_once",
    "compiled_once",
    "live_gateway",
    "outbox_of_nobody",
    "own_outbox",
    "owner",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    choosing.add_option(parser)
    choosing_frameworks.add_option(parser)
    results.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    # What a script starts in the background hands on to all commands here that they are not to hear a Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.load_profile("reduced" if "not slow" in config.option.markexpr else "full")
    results.begin(config)


def pytest_runtest_setup(item: pytest.Item) -> None:
    results.note(item)


def pytest_sessionstart(session: pytest.Session) -> None:
    choosing.begin(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: choosing.Node) -> None:
    choosing.hand_over(node)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage, and look never again at what is there then: it stays until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    collected.note(config, items)
    choosing.deselect(config, items)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    # None lets others decide.
    return choosing_frameworks.is_elsewhere(collection_path, Path(__file__).parent / "integrations") or None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    leaks.judge(report, on_purpose=item.get_closest_marker(leaks.MARK) is not None)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    choosing.end()


@pytest.fixture(autouse=True, scope="session")
def outbox_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state folder of the run's own, in place of the user's."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("TOOLGATE_OUTBOX")]:
            patch.delenv(name)
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def own_outbox(outbox_of_nobody: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a test's entries wait: nothing another test left is sent from there. It is made when it is used."""
    state = outbox_of_nobody / secrets.token_hex(4)
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    return state / "toolgate" / "outbox"


@pytest.fixture(scope="module")
def live_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway on the enterprise plan, shared by a module's tests: each registers its own organization."""
    with LiveGateway(tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway


@pytest.fixture
def owner(live_gateway: LiveGateway) -> Iterator[Owner]:
    """The admin of a fresh organization."""
    with Owner(live_gateway.url) as owner:
        yield owner
