"""pytest's `--database`: which kind of database the gateways under test use.

PostgreSQL is one server per run: the process that starts the tests starts it, and xdist's workers are told where it
is. A test that is about one kind of database says so and why, `@pytest.mark.sqlite_only("…")`, and is left out on the
other.
"""

import os
from typing import Any, Protocol

import pytest

from support.databases import CHOICE, Server
from support.postgres import Cluster
from support.postgres_versions import NoPostgres, preferred

SQLITE, POSTGRESQL = "sqlite", "postgresql"
ONLY = {SQLITE: "sqlite_only", POSTGRESQL: "postgresql_only"}


class Node(Protocol):
    """What this module uses of a worker of xdist, as its controller sees it."""

    workerinput: dict[str, Any]


class _Started:
    cluster: Cluster | None = None


def add_option(parser: pytest.Parser) -> None:
    """Offer `--database`."""
    parser.addoption(
        "--database",
        choices=(SQLITE, POSTGRESQL),
        default=SQLITE,
        help="the database of the gateways under test (default: %(default)s)",
    )


def begin(config: pytest.Config) -> None:
    """Start the server, or find it where the controller of this worker started it."""
    if config.getoption("database") != POSTGRESQL:
        return
    told = getattr(config, "workerinput", None)
    if told is not None:
        CHOICE.server = Server(told["postgresql_url"], told["postgresql_template"])
        return
    url = os.environ.get("TOOLGATE_TEST_POSTGRES_URL")
    try:
        if not url:
            _Started.cluster = Cluster(preferred()).start()
            url = _Started.cluster.url()
    except NoPostgres as error:
        raise pytest.UsageError(str(error)) from error
    CHOICE.server = Server(url)
    CHOICE.server.make_template()


def hand_over(node: Node) -> None:
    """Tell a worker where the server is."""
    if CHOICE.server is not None:
        node.workerinput["postgresql_url"] = CHOICE.server.url
        node.workerinput["postgresql_template"] = CHOICE.server.template


def end() -> None:
    """Remove what this process made."""
    if CHOICE.server is not None and _Started.cluster is None:
        CHOICE.server.drop_all()
    CHOICE.server = None
    if _Started.cluster is not None:
        _Started.cluster.stop()
        _Started.cluster = None


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is about the other kind of database."""
    chosen = config.getoption("database")
    kept, left_out = [], []
    for item in items:
        marks = {kind: item.get_closest_marker(name) for kind, name in ONLY.items()}
        for mark in filter(None, marks.values()):
            if len(mark.args) != 1 or not isinstance(mark.args[0], str):
                raise pytest.UsageError(f"{item.nodeid}: {mark.name} takes one reason, in words")
        (kept if all(mark is None or kind == chosen for kind, mark in marks.items()) else left_out).append(
            item
        )
    items[:] = kept
    if left_out:
        config.hook.pytest_deselected(items=left_out)
