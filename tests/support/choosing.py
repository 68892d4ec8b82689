"""pytest's `--database` and `--replicas`: which database the gateways under test use, and how many processes each is.

PostgreSQL is one server per run: the process that starts the tests starts it, and xdist's workers are told where it
is. A test that is about one kind of database says so and why, `@pytest.mark.sqlite_only("…")`, and is left out on the
other.

With `--replicas 3` every gateway is three processes behind a balancer that sends each request to a random one, on
PostgreSQL and, unless `--no-redis` is said, one Valkey: whatever is exact must stay so. A test about one process's own
memory says so, `@pytest.mark.one_process("…")`.
"""

import os
from typing import Any, Protocol

import pytest

from support.databases import CHOICE, Server
from support.postgres import Cluster
from support.postgres_versions import NoPostgres, preferred
from support.valkey import Valkey

SQLITE, POSTGRESQL = "sqlite", "postgresql"
ONLY = {SQLITE: "sqlite_only", POSTGRESQL: "postgresql_only"}


class Node(Protocol):
    """What this module uses of a worker of xdist, as its controller sees it."""

    workerinput: dict[str, Any]


class _Started:
    cluster: Cluster | None = None
    valkey: Valkey | None = None


def add_option(parser: pytest.Parser) -> None:
    """Offer `--database`, `--replicas` and `--no-redis`."""
    parser.addoption(
        "--database",
        choices=(SQLITE, POSTGRESQL),
        default=SQLITE,
        help="the database of the gateways under test (default: %(default)s)",
    )
    parser.addoption(
        "--replicas",
        type=int,
        default=1,
        help="how many processes each gateway under test is; more than one only on PostgreSQL (default: %(default)s)",
    )
    parser.addoption(
        "--no-redis", action="store_true", help="let replicas count rates in the database, without Redis"
    )


def begin(config: pytest.Config) -> None:
    """Start the servers, or find them where the controller of this worker started them."""
    CHOICE.replicas = config.getoption("replicas")
    if config.getoption("database") != POSTGRESQL:
        if CHOICE.replicas != 1:
            raise pytest.UsageError("--replicas needs --database=postgresql")
        return
    told = getattr(config, "workerinput", None)
    if told is not None:
        CHOICE.server = Server(told["postgresql_url"], told["postgresql_template"])
        CHOICE.redis_url = told["redis_url"]
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
    if CHOICE.replicas > 1 and not config.getoption("no_redis"):
        _Started.valkey = Valkey().start()
        CHOICE.redis_url = _Started.valkey.url


def hand_over(node: Node) -> None:
    """Tell a worker where the servers are."""
    if CHOICE.server is not None:
        node.workerinput["redis_url"] = CHOICE.redis_url
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
    if _Started.valkey is not None:
        _Started.valkey.stop()
        _Started.valkey = None


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is about the other kind of database, or about one process."""
    chosen, alone = config.getoption("database"), config.getoption("replicas") == 1
    kept, left_out = [], []
    for item in items:
        marks = {kind: item.get_closest_marker(name) for kind, name in ONLY.items()}
        for mark in filter(None, marks.values()):
            if len(mark.args) != 1 or not isinstance(mark.args[0], str):
                raise pytest.UsageError(f"{item.nodeid}: {mark.name} takes one reason, in words")
        fits = alone or item.get_closest_marker("one_process") is None
        fits = fits and all(mark is None or kind == chosen for kind, mark in marks.items())
        (kept if fits else left_out).append(item)
    items[:] = kept
    if left_out:
        config.hook.pytest_deselected(items=left_out)
