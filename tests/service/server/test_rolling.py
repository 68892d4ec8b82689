"""A rolling restart: each of three gateways is replaced in turn behind a balancer, and no request is lost."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.balancer import Balancer
from support.crowd import meanwhile, together
from support.gateway import LiveGateway, Owner
from support.wire import Wire

CLIENTS = 10
#: requests a second of all clients, and seconds of the pause
CALM = (100, "3")
FULL = (500, "2")


@pytest.fixture(params=[CALM, pytest.param(FULL, marks=pytest.mark.slow)], ids=["calm", "full"])
def pace(request: pytest.FixtureRequest) -> tuple[int, str]:
    """How many requests a second, and how long the pause is."""
    pace: tuple[int, str] = request.param
    return pace


@pytest.fixture
def replicas(tmp_path: Path, pace: tuple[int, str]) -> Iterator[list[LiveGateway]]:
    """Three gateways on one database."""
    made = [LiveGateway(tmp_path, env={"TOOLGATE_DRAIN_SECONDS": pace[1]}) for _ in range(3)]
    with ExitStack() as stack:
        for replica in made:
            stack.callback(replica.kill)
        together(*[replica.start for replica in made])
        yield made


def test_a_rolling_restart_loses_no_request(replicas: list[LiveGateway], pace: tuple[int, str]) -> None:
    """While all three are restarted one by one, every check and log is answered with 200, and every entry is there."""
    ports = [urlsplit(replica.url).port or 0 for replica in replicas]
    acknowledged: Counter[str] = Counter()
    counting = threading.Lock()
    between = CLIENTS / pace[0]
    with Balancer(ports, by_readiness=True) as balancer, Owner(balancer.url) as owner:
        agent = owner.agent()
        owner.permit(agent, "rolling.on")

        def ask(enough: threading.Event) -> None:
            due = time.monotonic()
            with Wire.of(owner) as wire:
                while not enough.wait(max(0, due - time.monotonic())):
                    due += 2 * between
                    assert wire.allowed(agent, "rolling.on")
                    answer = wire.log(agent, "rolling.on")
                    assert answer.status == 200, answer.raw
                    with counting:
                        acknowledged[answer.json()["id"]] += 1

        began = time.monotonic()
        with meanwhile([ask] * CLIENTS) as clients:
            for replica in replicas:
                replica.stop()
                # Back on its port, and the balancer finds out by itself.
                replica.start()
                assert not [client.exception() for client in clients if client.done()]
        lasted = time.monotonic() - began
        # The load was there all along.
        assert sum(acknowledged.values()) > lasted * pace[0] / 2 * 0.5
        with Wire.of(owner) as wire:
            assert Counter(entry["id"] for entry in wire.entries("rolling.on")) == acknowledged
