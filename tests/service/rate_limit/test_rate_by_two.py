"""One window for every process on one PostgreSQL server, with Redis or without, or on one SQLite file (decisions §7)."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from support.databases import CHOICE
from support.gateway import LiveGateway, Owner
from support.valkey import Valkey

LIMITED = {"TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE": "60"}
#: on a file a gateway counts in its own memory unless it has others beside it
SEVERAL = {"TOOLGATE_WORKERS": "2"}
WITH_REDIS = pytest.param(
    True, id="redis", marks=pytest.mark.postgresql_only("on a file gateways count in a file")
)


@pytest.fixture(params=[pytest.param(False, id="database"), WITH_REDIS], scope="module")
def two(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LiveGateway, LiveGateway]]:
    """Two gateways on one database, whose new organizations get the free plan."""
    folder = tmp_path_factory.mktemp("two")
    with Valkey() as valkey:
        env = LIMITED | ({"TOOLGATE_REDIS_URL": valkey.url} if request.param else {})
        if CHOICE.server is None:
            env |= SEVERAL
        with (
            LiveGateway(folder, plan="free", env=env) as first,
            LiveGateway(folder, plan="free", env=env) as second,
        ):
            yield first, second


def in_one_minute(
    two: tuple[LiveGateway, LiveGateway], ask: Callable[[httpx.Client, Owner, int], httpx.Response]
) -> list[httpx.Response]:
    """Return what two hundred requests of a new organization got, sent to either gateway at the same time."""
    clients = [httpx.Client(base_url=gateway.url, timeout=30) for gateway in two]
    try:
        for _ in range(3):
            with Owner(two[0].url) as owner, ThreadPoolExecutor(16) as pool:
                answers = list(pool.map(lambda n, o=owner: ask(clients[n % 2], o, n), range(200)))
            if len({answer.headers["X-RateLimit-Reset"] for answer in answers}) == 1:
                return answers
    finally:
        for client in clients:
            client.close()
    raise AssertionError("a minute turned during every attempt")


def test_of_two_hundred_requests_at_both_a_hundred_pass(two: tuple[LiveGateway, LiveGateway]) -> None:
    """Sent to either at the same time, a minute's checks and entries are counted together and exactly."""

    def ask(client: httpx.Client, owner: Owner, number: int) -> httpx.Response:
        body = {"agent_id": "x", "action": "a"}
        if number % 4 < 2:
            return client.post("/sdk/check", json=body, headers={"X-API-Key": owner.key})
        return client.post("/sdk/log", json=body | {"status": "success"}, headers={"X-API-Key": owner.key})

    answers = in_one_minute(two, ask)
    counted = Counter(answer.status_code for answer in answers)
    # Nobody has an agent "x": its checks are blocked, and its entries not found.
    assert (counted[200] + counted[404], counted[429]) == (100, 100)


def test_a_users_requests_are_counted_together(two: tuple[LiveGateway, LiveGateway]) -> None:
    """What a person asks for at either gateway counts against one limit."""

    def ask(client: httpx.Client, owner: Owner, _: int) -> httpx.Response:
        return client.get("/api/agents", headers=dict(owner.http.headers))

    answers = in_one_minute(two, ask)
    # One was spent on reading the key.
    assert Counter(answer.status_code for answer in answers) == {200: 59, 429: 141}


def test_a_revoked_key_costs_nobody_anything(two: tuple[LiveGateway, LiveGateway]) -> None:
    """Whoever goes on asking with it is refused, and takes nothing from those who have the new one."""
    for _ in range(3):
        with Owner(two[0].url) as owner:
            old = owner.key
            answers = [owner.check("x", "a")]
            owner.key = owner.http.post("/api/organization/regenerate-key").json()["api_key"]
            for _ in range(20):
                late = owner.http.post(
                    "/sdk/check", json={"agent_id": "x", "action": "a"}, headers={"X-API-Key": old}
                )
                assert late.status_code == 401
                answers.append(owner.check("x", "a"))
        if len({answer.headers["X-RateLimit-Reset"] for answer in answers}) == 1:
            break
    else:
        raise AssertionError("a minute turned during every attempt")
    left = [int(answer.headers["X-RateLimit-Remaining"]) for answer in answers]
    assert left == list(range(99, 78, -1))
