"""Two versions on one database: the one before, which was there first, and this one, which migrated beside it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.before import GatewayBefore, Versions, unpacked
from support.databases import CHOICE, database_file, empty_database
from support.gateway import LiveGateway


@pytest.fixture(scope="session")
def code_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the version before."""
    return unpacked(tmp_path_factory.mktemp("before"))


def not_started(code: Path, folder: Path) -> Versions:
    """Return both on a database without a schema."""
    env = {"TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE": "1000000"}
    if CHOICE.server is not None:
        env["TOOLGATE_DATABASE_URL"] = empty_database(folder)
    else:
        # An empty file is a database without a schema; without a file, one with the newest schema would be copied.
        database_file(folder).touch(mode=0o600)
    return Versions(GatewayBefore(code, folder, env=env), LiveGateway(folder, env=env))


@pytest.fixture
def update(code_before: Path, tmp_path: Path) -> Iterator[Versions]:
    """The version before, serving; this one is not started yet."""
    versions = not_started(code_before, tmp_path)
    try:
        versions.before.start()
        yield versions
    finally:
        versions.now.stop()
        versions.before.stop()


@pytest.fixture(scope="module")
def versions(code_before: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Versions]:
    """Both, serving side by side."""
    both = not_started(code_before, tmp_path_factory.mktemp("versions"))
    try:
        both.before.start()
        both.now.start()
        yield both
    finally:
        both.now.stop()
        both.before.stop()
