"""Transparency log: speed of the sealer, time of a receipt, lag under load, and speed of the verification.

The benchmark inserts committed leaves into the database of a stopped gateway. The gateway then seals them as usual, and
returns receipts of log entries that were written before and after them. Then clients write log entries without a pause,
and the lag of some of them is measured: the time from the response until a receipt exists. Last, an auditor's program verifies
the export of a gateway with many log entries.

Run it with `make bench-transparency ARGS="--leaves 10000000"`; ten million leaves take about eight minutes and 3 GB.
"""

import argparse
import multiprocessing
import sqlite3
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.gateway import LiveGateway, Owner
from support.verified_log import export
from support.waiting import until

from toolgate_cli.log.verification.export import verify_export
from toolgate_service.transparency.chunks import build_chunks
from toolgate_service.transparency.leaves import Leaf
from toolgate_service.transparency.statements import write_chunks

CHUNK = 500
RECEIPTS = 200
#: log entries of a request
BATCH = 100
#: processes that write log entries while the lag is measured, and number of measured entries
WRITERS, LAGS = 4, 100


def main() -> None:
    """Print the number of leaves that are sealed in a second, and the times of receipts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leaves", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=100_000, help="log entries of the verified export")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        env = {
            "TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE": "1000000",
            "TOOLGATE_SDK_REQUESTS_PER_MINUTE": "1000000",
        }
        with LiveGateway(Path(folder), env=env) as gateway, Owner(gateway.url) as owner:
            first = write_entries(owner)
            before = wait_until_sealed(owner)
            gateway.stop()
            insert_leaves(Path(folder) / "gateway.db", str(owner.user["organization_id"]), arguments.leaves)
            gateway.start()
            began = time.monotonic()
            wait_until_sealed(owner, before + arguments.leaves)
            seconds = time.monotonic() - began
            print(
                f"sealed {arguments.leaves:,} leaves in {seconds:.0f} s, {arguments.leaves / seconds:,.0f} leaves/s"
            )
            last = write_entries(owner)
            size = wait_until_sealed(owner, before + arguments.leaves + len(last))
            for name, entries in (("oldest", first), ("newest", last)):
                times = receipt_times(owner, entries)
                print(
                    f"receipts of the {name} entries among {size:,} leaves: median {statistics.median(times) * 1e3:.2f} ms, "
                    f"99 % {sorted(times)[int(len(times) * 0.99)] * 1e3:.2f} ms"
                )
            lags, rate = lag_times(owner)
            print(
                f"lag at {rate:,.0f} log entries/s: median {statistics.median(lags):.2f} s, "
                f"99 % {sorted(lags)[int(len(lags) * 0.99)]:.2f} s"
            )

    with (
        tempfile.TemporaryDirectory() as folder,
        LiveGateway(Path(folder), env=env) as gateway,
        Owner(gateway.url) as owner,
    ):
        seconds, rows = verification(owner, arguments.rows)
        print(f"verified an export of {rows:,} rows in {seconds:.2f} s, {rows / seconds:,.0f} rows/s")


def verification(owner: Owner, number: int) -> tuple[float, int]:
    """Return the seconds for which the verification of an export takes, and its number of rows."""
    agent = owner.agent()
    entry = {"agent_id": agent, "action": "stripe.refund", "status": "success"}
    for start in range(0, number, BATCH):
        entries = [entry | {"context": {"amount": start + one, "currency": "EUR"}} for one in range(BATCH)]
        answer = owner.http.post("/sdk/logs", json={"entries": entries}, headers={"X-API-Key": owner.key})
        answer.raise_for_status()
    wait_until_sealed(owner, number)
    lines = export(owner)
    began = time.perf_counter()
    result = verify_export(lines)
    seconds = time.perf_counter() - began
    assert result.findings == []
    return seconds, sum(result.counts[kind] for kind in ("log_entry", "audit_event"))


def write_entries(owner: Owner) -> list[str]:
    """Write log entries and return their ids."""
    agent = owner.agent()
    return [
        str(owner.log(agent, "bench.action", context={"number": number}).json()["id"]) for number in range(20)
    ]


def wait_until_sealed(owner: Owner, size: int = 1) -> int:
    """Wait until the log has at least this number of leaves and no pending ones, and return the number."""
    found = 0

    def is_sealed() -> bool:
        nonlocal found
        answer = owner.http.get("/api/transparency")
        if answer.status_code != 200 or answer.json()["pending"]:
            return False
        found = int(answer.json()["size"])
        return found >= size

    until(is_sealed, seconds=3_600)
    return found


def insert_leaves(path: Path, organization_id: str, number: int) -> None:
    """Insert committed leaves that are not sealed."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    with sqlite3.connect(path) as connection:
        for start in range(0, number, CHUNK):
            leaves = [b'{"id":"%d"}' % index for index in range(start, min(number, start + CHUNK))]
            write_chunks(
                connection,
                build_chunks([Leaf(organization_id, "production", moment, leaf) for leaf in leaves]),
            )


def receipt_times(owner: Owner, entries: list[str]) -> list[float]:
    """Return the times of requests for receipts."""
    times = []
    for number in range(RECEIPTS):
        began = time.perf_counter()
        answer = owner.http.get(f"/api/logs/{entries[number % len(entries)]}/receipt")
        times.append(time.perf_counter() - began)
        assert answer.status_code == httpx.codes.OK, answer.text
    return times


def lag_times(owner: Owner) -> tuple[list[float], float]:
    """Return the seconds until log entries have a receipt while others are written, and the others per second."""
    agent, lags = owner.agent(), []
    context = multiprocessing.get_context("spawn")
    written, ends = context.Value("q", 0), context.Event()
    arguments = (owner.url, owner.key, agent, written, ends)
    writers = [context.Process(target=write_until, args=arguments) for _ in range(WRITERS)]
    for writer in writers:
        writer.start()
    until(lambda: written.value > WRITERS)
    first, began = written.value, time.monotonic()
    for number in range(LAGS):
        entry = owner.log(agent, "bench.lag", context={"number": number}).json()["id"]
        responded = time.monotonic()
        until(partial(has_receipt, owner, entry))
        lags.append(time.monotonic() - responded)
    rate = (written.value - first) / (time.monotonic() - began)
    ends.set()
    for writer in writers:
        writer.join()
    return lags, rate


def has_receipt(owner: Owner, entry: str) -> bool:
    """Return whether a log entry has a receipt."""
    return owner.http.get(f"/api/logs/{entry}/receipt").status_code == httpx.codes.OK


def write_until(url: str, key: str, agent: str, written: Any, ends: Any) -> None:
    """Write log entries until the event is set, and count them."""
    body = {"agent_id": agent, "action": "bench.load", "status": "success", "context": {"amount": 12.5}}
    with httpx.Client(base_url=url, headers={"X-API-Key": key}) as http:
        while not ends.is_set():
            http.post("/sdk/log", json=body).raise_for_status()
            with written.get_lock():
                written.value += 1


if __name__ == "__main__":
    main()
