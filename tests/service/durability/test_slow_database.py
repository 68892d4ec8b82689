"""A database that falls silent or slow: callers hear 503 in time, nothing grows, and all is well once it answers."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import make_url
from support.databases import database_url
from support.gateway import LiveGateway, Owner
from support.lines import Line, Lines
from support.waiting import until
from support.wire import Heard, Wire

pytestmark = pytest.mark.postgresql_only("an SQLite gateway has no network before its database")

CLIENTS = 40
TIMES = [1, pytest.param(20, marks=pytest.mark.slow)]
#: of each entry that waits
CONTEXT = "x" * 60_000


@dataclass
class Far:
    """A gateway that reaches its database over a line which fails on demand."""

    gateway: LiveGateway
    line: Line

    def memory(self) -> int:
        """Return what its process holds, in bytes."""
        assert self.gateway.process is not None
        status = Path(f"/proc/{self.gateway.process.pid}/status").read_text()
        [held] = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
        return int(held) * 1024


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    """A gateway far from its database."""
    folder = tmp_path_factory.mktemp("far")
    there = make_url(database_url(folder))
    assert there.port is not None
    with Lines() as lines:
        line = lines.to(there.port)
        here = there.set(host="127.0.0.1", port=line.port)
        env = {"TOOLGATE_DATABASE_URL": here.render_as_string(hide_password=False)}
        with LiveGateway(folder, env=env) as gateway:
            yield Far(gateway, line)
            line.heal()


def _ask(owner: Owner, agent: str, times: int, client: int) -> list[Heard]:
    with Wire.of(owner) as wire:
        heard = []
        for number in range(times):
            heard.append(wire.check(agent, "files.read"))
            heard.append(
                wire.log(agent, "amid.silence", key=f"{client}-{number}", held=CONTEXT)
                if client % 2
                else wire.send("GET", "/api/agents")
            )
        return heard


@pytest.mark.parametrize("times", TIMES)
def test_silence_is_answered_in_time_and_fills_no_memory(far: Far, times: int) -> None:
    """Forty clients of a gateway whose database says nothing all hear 503 before they give up; then it recovers."""
    with Owner(far.gateway.url) as owner:
        agent = owner.agent()
        owner.permit(agent, "files.read")
        assert owner.check(agent, "files.read").json()["allowed"]
        before = far.memory()
        far.line.fall_silent()
        with ThreadPoolExecutor(CLIENTS) as pool:
            heard = list(pool.map(partial(_ask, owner, agent, times), range(CLIENTS)))
        for answer in (answer for one in heard for answer in one):
            assert answer.status == 503, answer.raw
            assert int(answer.headers["Retry-After"]) >= 1
        with Wire.of(owner) as wire:
            assert wire.send("GET", "/health").status == 200
            assert wire.send("GET", "/health/ready").status == 503
        assert far.memory() - before < 64 * 1024 * 1024
        far.line.heal()
        with Wire.of(owner) as wire:
            assert until(lambda: wire.check(agent, "files.read").status == 200)
            assert wire.allowed(agent, "files.read")
            assert until(lambda: wire.send("GET", "/health/ready").status == 200)
            again = wire.log(agent, "amid.silence", key="1-0", held=CONTEXT)
            assert until(lambda: wire.send("GET", "/api/agents").status == 200)
        assert again.status == 200


@pytest.mark.slow
def test_a_slow_database_is_waited_for(far: Far) -> None:
    """A tenth of a second a round trip is slow and no fault: checks, logs and pages are answered as ever."""
    with Owner(far.gateway.url) as owner, Wire.of(owner) as wire:
        agent = owner.agent()
        granted = owner.permit(agent, "files.read")
        far.line.slow_down(50)
        try:
            assert wire.allowed(agent, "files.read")
            assert wire.log(agent, "slowly").status == 200
            assert wire.send("DELETE", f"/api/permissions/{granted}").status == 204
            assert not wire.allowed(agent, "files.read")
        finally:
            far.line.heal()
