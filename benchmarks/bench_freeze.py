"""Time until a freeze takes effect: clients send checks without pause to three gateways, and one of them gets a freeze.

A check that starts after the response to the freeze must be denied. The benchmark ends with an error if one is allowed.
It prints the time from sending the freeze to the last allowed decision of any gateway, and to the response to the
freeze.

Run it with `make bench-freeze`.
"""

import argparse
import asyncio
import functools
import itertools
import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Self

from load.connection import post, whole
from load.machine import LOAD, circumstances, on_core
from load.stage import ALLOWED, Ours, staged

FROZEN = b"x-reason-code: frozen"
#: least seconds of checks before each freeze and after the response to it
PAUSE = 0.1
#: checks of each connection that must start after the response to a freeze
LATE_CHECKS = 3
#: maximum number of pauses until each connection got the expected answers
MAX_PAUSES = 100


class Client:
    """Connection that sends one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> Self:
        """Open a connection to a gateway on this machine."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, request: bytes) -> tuple[float, float, bytes]:
        """Return the times before the request was sent and after the response was received, and the response."""
        began = time.perf_counter()
        self._writer.write(request)
        response = b""
        while not whole(response):
            part = await self._reader.read(65536)
            if not part:
                raise ConnectionError(f"the gateway closed the connection after {response[:300]!r}")
            response += part
        return began, time.perf_counter(), response

    async def __aenter__(self) -> Self:
        """Return the open connection."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection."""
        self._writer.close()


@dataclass
class Round:
    """Results of one freeze; all times are seconds since the freeze was sent.

    Attributes:
        responded: Time of the response to the freeze.
        last_allowed: Time of the last allowed decision; 0 if there was none after the freeze was sent.
        late: Number of checks that started after the response.
        late_allowed: Number of these that were allowed.
    """

    responded: float
    last_allowed: float
    late: int
    late_allowed: int


@dataclass
class Checks:
    """Checks that a connection has sent: when each started and ended, and whether it was allowed."""

    client: Client
    request: Callable[[], bytes]
    done: list[tuple[float, float, bool]] = field(default_factory=list)

    async def run(self) -> None:
        """Send checks without pause until the task is cancelled."""
        while True:
            began, ended, response = await self.client.send(self.request())
            is_allowed = ALLOWED in response
            if not is_allowed and FROZEN not in response.lower():
                raise RuntimeError(f"a check was neither allowed nor frozen: {response[:600]!r}")
            self.done.append((began, ended, is_allowed))


async def measure(ours: Ours, ports: Sequence[int], connections: int, rounds: int) -> list[Round]:
    """Freeze and lift `rounds` times, each time at the next gateway, while all gateways answer checks."""
    headers = {"Authorization": f"Bearer {ours.owner.token}"}
    order = post("/api/freeze", json.dumps({"reason": "measurement"}).encode(), headers)
    async with AsyncExitStack() as stack:
        admins = [await stack.enter_async_context(await Client.connect(port)) for port in ports]
        checks = [
            Checks(await stack.enter_async_context(await Client.connect(port)), ours.check().request)
            for port in ports
            for _ in range(connections)
        ]
        running = [asyncio.create_task(each.run()) for each in checks]
        measuring = asyncio.create_task(
            _measure_rounds(itertools.cycle(admins), checks, order, headers, rounds)
        )
        # A failed client ends the measurement.
        await asyncio.wait([measuring, *running], return_when=asyncio.FIRST_COMPLETED)
        for task in running:
            if task.done():
                task.result()
            task.cancel()
        return await measuring


async def _measure_rounds(
    admins: "itertools.cycle[Client]",
    checks: Sequence[Checks],
    order: bytes,
    headers: dict[str, str],
    rounds: int,
) -> list[Round]:
    found = []
    for admin in itertools.islice(admins, rounds):
        for each in checks:
            each.done.clear()
        await _wait_for_each(checks, lambda each: any(is_allowed for _, _, is_allowed in each.done))
        sent, responded, response = await admin.send(order)
        freeze_id = _read(response, b"201")["id"]
        await _wait_for_each(checks, functools.partial(_has_late_checks, responded))
        done = [one for each in checks for one in each.done]
        late = [is_allowed for began, _, is_allowed in done if began > responded]
        last = max((ended for _, ended, is_allowed in done if is_allowed and ended > sent), default=sent)
        found.append(Round(responded - sent, last - sent, len(late), sum(late)))
        _read((await admin.send(post(f"/api/freeze/{freeze_id}/lift", b"", headers)))[2], b"200")
    return found


async def _wait_for_each(checks: Sequence[Checks], condition: Callable[[Checks], bool]) -> None:
    for _ in range(MAX_PAUSES):
        await asyncio.sleep(PAUSE)
        if all(condition(each) for each in checks):
            return
    raise RuntimeError("a connection did not get the expected answers")


def _has_late_checks(responded: float, checks: Checks) -> bool:
    return sum(began > responded for began, _, _ in checks.done) >= LATE_CHECKS


def _read(response: bytes, status: bytes) -> dict[str, str]:
    head, _, body = response.partition(b"\r\n\r\n")
    if head.split()[1] != status:
        raise RuntimeError(f"the gateway refused a request: {response[:600]!r}")
    content: dict[str, str] = json.loads(body)
    return content


def describe(name: str, seconds: Sequence[float]) -> str:
    """Return a line with the median and the maximum in milliseconds."""
    return f"{name:<34} median {statistics.median(seconds) * 1000:6.1f} ms   maximum {max(seconds) * 1000:6.1f} ms"


def main() -> None:
    """Measure and print; end with an error if a check that started after the response was allowed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="postgresql")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--connections", type=int, default=4, help="connections to each gateway")
    given = parser.parse_args()
    is_postgresql = given.database == "postgresql"
    with staged(postgresql=is_postgresql) as stage, on_core(LOAD):
        if is_postgresql:
            ours, ports = stage.replicas(3, with_redis=True)
        else:
            ours = stage.gateway()
            ports = [ours.server.port]
        rounds = asyncio.run(measure(ours, ports, given.connections, given.rounds))
    print(
        f"{len(rounds)} freezes, {len(ports)} gateways on {given.database}, {given.connections} connections to each"
    )
    print("; ".join(f"{name}: {value}" for name, value in circumstances().items()))
    print(describe("sent until the last allowed decision", [each.last_allowed for each in rounds]))
    print(describe("sent until the response", [each.responded for each in rounds]))
    late, allowed = sum(each.late for each in rounds), sum(each.late_allowed for each in rounds)
    print(f"{late:,} checks started after the response; {allowed} of them were allowed")
    if allowed:
        raise SystemExit("a check that started after the response to the freeze was allowed")


if __name__ == "__main__":
    main()
