"""One window for every process on one PostgreSQL server, or on one SQLite file (decisions §7)."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from support.gateway import LiveGateway, Owner

#: on a file a gateway counts in its own memory unless it is told that it has others beside it
TOGETHER = {"TOOLGATE_WORKERS": "2"}


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[LiveGateway, LiveGateway]]:
    """Two gateways on one database, whose new organizations get the free plan."""
    with (
        LiveGateway(tmp_path, plan="free", env=TOGETHER) as first,
        LiveGateway(tmp_path, plan="free", env=TOGETHER) as second,
    ):
        yield first, second


def test_of_two_hundred_requests_at_both_a_hundred_pass(two: tuple[LiveGateway, LiveGateway]) -> None:
    """Sent to either at the same time, a minute's requests are counted together and exactly."""
    for _ in range(3):
        with Owner(two[0].url) as owner:
            body, headers = {"agent_id": "x", "action": "a"}, {"X-API-Key": owner.key}

            def ask(
                number: int, body: dict[str, str] = body, headers: dict[str, str] = headers
            ) -> httpx.Response:
                return httpx.post(f"{two[number % 2].url}/sdk/check", json=body, headers=headers, timeout=30)

            with ThreadPoolExecutor(16) as pool:
                answers = list(pool.map(ask, range(200)))
        if len({answer.headers["X-RateLimit-Reset"] for answer in answers}) == 1:
            break
    else:
        raise AssertionError("a minute turned during every attempt")
    assert Counter(answer.status_code for answer in answers) == {200: 100, 429: 100}
