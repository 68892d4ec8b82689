"""The load generator against servers that stall, lie and leave."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load.connection import Asked, Target, UnexpectedAnswer, post, whole
from load.generator import Load

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\ndate: now\r\n\r\ntrue"
STALL = 0.2


@asynccontextmanager
async def serving(answer: Callable[[int, bytes], bytes], *, stalls_at: int = 0) -> AsyncIterator[int]:
    """A server that numbers requests; from one of them on it answers nobody for 200 ms, then everybody."""
    running, awake, count = asyncio.get_running_loop(), asyncio.Event(), 0
    awake.set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        try:
            while request := await reader.readuntil(b"}"):
                count += 1
                if count == stalls_at:
                    awake.clear()
                    running.call_later(STALL, awake.set)
                await awake.wait()
                if not (said := answer(count, request)):
                    break
                writer.write(said)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def asking(port: int, *paths: str) -> Target:
    """Requests that expect `true`."""
    requests = [post(path, b"{}", {}) for path in paths or ("/",)]
    return Target(port, tuple(Asked(lambda request=request: request, b"true") for request in requests))


async def test_an_open_loop_shows_a_stall_to_all_who_were_due() -> None:
    """200 ms of silence are in the p99, and every request that was due meanwhile is counted, with its wait."""
    async with serving(lambda *_: ANSWER, stalls_at=20) as port, Load(asking(port), 4) as load:
        found = await load.open(0.4, 400)
    [latencies] = found.latencies
    assert latencies.total == 160
    # 80 were due while nobody was answered; four connections alone would have shown it in four.
    assert latencies.quantile(0.99) >= 0.95 * STALL * 1e9
    assert latencies.quantile(0.75) >= 0.1 * STALL * 1e9
    assert found.seconds >= 0.4


async def test_a_closed_loop_waits_for_each_answer() -> None:
    """A connection has one request under way, and so a stall is seen once by each."""
    async with serving(lambda *_: ANSWER, stalls_at=20) as port, Load(asking(port), 4) as load:
        found = await load.closed(0.3)
    [latencies] = found.latencies
    slow = sum(count for bucket, count in latencies.counts.items() if bucket >= _bucket_of(STALL))
    assert 1 <= slow <= 4
    assert found.rate == pytest.approx(latencies.total / found.seconds)


def _bucket_of(seconds: float) -> int:
    from load.histogram import _bucket

    return _bucket(int(seconds * 0.95e9))


async def test_requests_are_taken_in_turn() -> None:
    """Each connection alternates, and each kind has its own latencies."""
    seen: list[bytes] = []

    def answer(_: int, request: bytes) -> bytes:
        seen.append(request.split()[1])
        return ANSWER

    async with serving(answer) as port, Load(asking(port, "/check", "/log"), 1) as load:
        found = await load.open(0.05, 200)
    assert seen == [b"/check", b"/log"] * 5
    assert [kind.total for kind in found.latencies] == [5, 5]


@pytest.mark.parametrize(
    "lie",
    [
        ANSWER.replace(b"true", b"fals"),
        ANSWER.replace(b"200 OK", b"503 Busy"),
        b"",
    ],
    ids=["another body", "another status", "no answer"],
)
@pytest.mark.parametrize("way", ["closed", "open"])
async def test_what_is_not_the_expected_answer_ends_the_run(lie: bytes, way: str) -> None:
    """Refusals and errors are quick, and would pass for speed."""
    async with (
        serving(lambda number, _: ANSWER if number < 5 else lie) as port,
        Load(asking(port), 2) as load,
    ):
        with pytest.raises(UnexpectedAnswer):
            await (load.closed(30) if way == "closed" else load.open(0.1, 200))


@given(st.integers(0, len(ANSWER)))
def test_an_answer_is_whole_with_its_last_byte(size: int) -> None:
    """However the network cuts it."""
    assert whole(ANSWER[:size]) is (size == len(ANSWER))


def test_an_answer_in_chunks_is_whole_with_its_last_chunk() -> None:
    """A server that does not tell the length beforehand is read too."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert not whole(head + b"4\r\ntrue\r\n")
    assert whole(head + b"4\r\ntrue\r\n0\r\n\r\n")


async def test_what_the_server_closed_between_two_slices_is_made_anew() -> None:
    """A server ends connections that nobody used for a while: the next slice begins with others."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        while await reader.read(1000):
            writer.write(ANSWER)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with Load(asking(server.sockets[0].getsockname()[1]), 2) as load:
        assert (await load.open(0.05, 200)).latencies[0].total == 10
        for writer in writers:
            writer.close()
        await asyncio.gather(*(one.lost for one in load._connections), return_exceptions=True)
        assert (await load.open(0.05, 200)).latencies[0].total == 10
    server.close()
    for writer in writers:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
    assert len(writers) == 4
