"""The gateway's client for witnesses, with the witness of the command line and with prepared responses."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support.receiver import Answer, Receiver
from support.transparency_logs import SignedLog, encode, verifier_key
from support.witness_server import ServedWitness

from toolgate_service.core.witness_settings import Witness, read_witnesses
from toolgate_service.transparency.witnesses import (
    MAX_CLOCK_DIFFERENCE,
    MAX_RESPONSE,
    Cosignature,
    InvalidCosignature,
    WitnessAhead,
    WitnessClient,
    WitnessInconsistent,
    WitnessRejected,
    WitnessUnavailable,
    verify_cosignature,
)

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
KEY = Ed25519PrivateKey.from_private_bytes(bytes([9] * 32))
WITNESS = Witness("http://witness.test", "example.com/witness", KEY.public_key().public_bytes_raw())
SIZE = {"Content-Type": "text/x.tlog.size"}
LOG = SignedLog(20)


def cosign(text: str, moment: int = int(NOW.timestamp()), *, witness: Witness = WITNESS) -> str:
    signature = KEY.sign(f"cosignature/v1\ntime {moment}\n{text}".encode())
    return f"— {witness.name} {encode(witness.key_id + moment.to_bytes(8, 'big') + signature)}\n"


def prover(log: SignedLog) -> Callable[[int, int], Awaitable[Sequence[bytes]]]:
    async def prove(old: int, new: int) -> Sequence[bytes]:
        assert 0 < old < new
        return log.proof(old, new)

    return prove


async def submit(
    client: WitnessClient, size: int, *, log: SignedLog = LOG, witness: Witness | None = None
) -> Cosignature:
    return await client.cosign(
        witness or client.witnesses[0], log.origin, log.checkpoint(size), size, prover(log)
    )


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., WitnessClient]]:
    """Make clients of witnesses at a URL, and close them."""
    made = []

    def connect(url: str, **options: Any) -> WitnessClient:
        client = WitnessClient([replace(WITNESS, url=url)], **{"clock": lambda: NOW, **options})
        made.append(client)
        return client

    yield connect
    for client in made:
        await client.close()


class TestWithAWitness:
    """The client with `toolgate witness serve`."""

    @pytest.fixture
    async def client(self, tmp_path: Path) -> AsyncIterator[WitnessClient]:
        with ServedWitness(tmp_path, LOG) as served:
            client = WitnessClient(read_witnesses(f"{served.url} {served.key}"))
            yield client
            await client.close()

    async def test_growing_log_is_cosigned(self, client: WitnessClient) -> None:
        for size in (1, 1, 2, 9, 20):
            cosignature = await submit(client, size)
            assert cosignature == verify_cosignature(
                client.witnesses[0], LOG.text(size), cosignature.line.encode(), datetime.now(UTC)
            )

    async def test_new_client_continues_with_the_size_of_the_witness(self, client: WitnessClient) -> None:
        await submit(client, 7)
        other = WitnessClient(client.witnesses)
        assert (await submit(other, 20)).line.startswith("— example.com/witness ")
        await other.close()

    async def test_size_that_another_client_has_exceeded_is_corrected(self, client: WitnessClient) -> None:
        await submit(client, 7)
        other = WitnessClient(client.witnesses)
        await submit(other, 12)
        await other.close()
        for size in (12, 20):
            await submit(client, size)

    async def test_smaller_log_is_reported_with_the_size_of_the_witness(self, client: WitnessClient) -> None:
        await submit(client, 12)
        assert await client.fetch_latest(client.witnesses[0], "other.test") is None
        with pytest.raises(WitnessAhead, match=r"has cosigned a checkpoint of size 12.* has size 7") as ahead:
            await submit(client, 7)
        assert ahead.value.size == 12
        latest = await client.fetch_latest(client.witnesses[0], LOG.origin)
        assert latest is not None
        assert latest.startswith(LOG.checkpoint(12) + "— example.com/witness ")

    async def test_fork_is_reported(self, client: WitnessClient) -> None:
        await submit(client, 7)
        for size in (7, 12):
            with pytest.raises(WitnessInconsistent) as rejection:
                await submit(client, size, log=LOG.fork(3))
            assert rejection.value.status == 422

    async def test_unknown_log_and_unknown_key_are_reported(self, client: WitnessClient) -> None:
        for log, status in ((SignedLog(3, origin="other.test"), 404), (SignedLog(3, seed=bytes(32)), 403)):
            with pytest.raises(WitnessRejected) as rejection:
                await submit(client, 3, log=log)
            assert (rejection.value.status, type(rejection.value)) == (status, WitnessRejected)

    async def test_cosignature_of_another_key_is_invalid(self, client: WitnessClient) -> None:
        other = replace(client.witnesses[0], public_key=WITNESS.public_key)
        with pytest.raises(InvalidCosignature, match="no cosignature of the key"):
            await submit(client, 3, witness=other)
        await submit(client, 3)


async def test_request_has_the_specified_form(connect: Callable[..., WitnessClient]) -> None:
    with Receiver(
        Answer(200, body=cosign(LOG.text(5)).encode()), Answer(200, body=cosign(LOG.text(9)).encode())
    ) as witness:
        client = connect(f"http://127.0.0.1:{witness.port}/prefix")
        await submit(client, 5)
        await submit(client, 9)
    assert [got.path for got in witness.got] == ["/prefix/add-checkpoint"] * 2
    assert [got.body for got in witness.got] == [LOG.request(0, 5), LOG.request(5, 9)]


async def test_conflict_is_retried_once(connect: Callable[..., WitnessClient]) -> None:
    with Receiver(Answer(409, SIZE, b"5\n"), Answer(200, body=cosign(LOG.text(9)).encode())) as witness:
        assert (await submit(connect(f"http://127.0.0.1:{witness.port}"), 9)).cosigned_at == NOW
    assert [got.body for got in witness.got] == [LOG.request(0, 9), LOG.request(5, 9)]


async def test_second_conflict_is_unavailable(connect: Callable[..., WitnessClient]) -> None:
    with (
        Receiver(default=Answer(409, SIZE, b"5\n")) as witness,
        pytest.raises(WitnessUnavailable, match="has cosigned a checkpoint of size 5 during the request"),
    ):
        await submit(connect(f"http://127.0.0.1:{witness.port}"), 9)
    assert len(witness.got) == 2


async def test_larger_size_in_the_second_conflict_is_reported(connect: Callable[..., WitnessClient]) -> None:
    with (
        Receiver(Answer(409, SIZE, b"5\n"), Answer(409, SIZE, b"12\n")) as witness,
        pytest.raises(WitnessAhead) as ahead,
    ):
        await submit(connect(f"http://127.0.0.1:{witness.port}"), 9)
    assert ahead.value.size == 12


async def test_conflict_for_another_root_is_inconsistent(connect: Callable[..., WitnessClient]) -> None:
    with (
        Receiver(default=Answer(409, {"Content-Type": "text/plain"}, b"root hash\n")) as witness,
        pytest.raises(WitnessInconsistent),
    ):
        await submit(connect(f"http://127.0.0.1:{witness.port}"), 9)
    assert len(witness.got) == 1


@pytest.mark.parametrize("body", [b"", b"5", b"05\n", b"-5\n", b"5\n\n", b"1" * 20 + b"\n", b"x" * 70_000])
async def test_invalid_size_is_unavailable(connect: Callable[..., WitnessClient], body: bytes) -> None:
    with (
        Receiver(default=Answer(409, SIZE, body)) as witness,
        pytest.raises(WitnessUnavailable),
    ):
        await submit(connect(f"http://127.0.0.1:{witness.port}"), 9)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, WitnessRejected),
        (410, WitnessRejected),
        (429, WitnessUnavailable),
        (302, WitnessUnavailable),
        (204, WitnessUnavailable),
        (500, WitnessUnavailable),
        (503, WitnessUnavailable),
    ],
)
async def test_other_statuses_are_reported(
    connect: Callable[..., WitnessClient], status: int, error: type[Exception]
) -> None:
    with (
        Receiver(default=Answer(status, {"Location": "http://127.0.0.1:1/"})) as witness,
        pytest.raises(error, match=str(status)),
    ):
        await submit(connect(f"http://127.0.0.1:{witness.port}"), 9)
    assert len(witness.got) == 1


async def test_unknown_lines_of_a_response_are_removed(connect: Callable[..., WitnessClient]) -> None:
    own = cosign(LOG.text(9))
    other = verifier_key("other", 4, bytes(32)).partition("+")[0]
    lines = f"— {other} {encode(bytes(76))}\n— {WITNESS.name} {encode(bytes(76))}\n{own}"
    with Receiver(Answer(200, body=lines.encode())) as witness:
        assert (await submit(connect(f"http://127.0.0.1:{witness.port}"), 9)).line == own


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"ok",
        b"\xff\xfe",
        f"— {WITNESS.name} !!!\n".encode(),
        cosign(LOG.text(8)).encode(),
        cosign(LOG.text(9), 0).encode(),
        cosign(LOG.text(9), int(NOW.timestamp()) + MAX_CLOCK_DIFFERENCE + 1).encode(),
        cosign(LOG.text(9), 2**63).encode(),
        cosign(LOG.text(9), witness=replace(WITNESS, name="another")).encode(),
        f"— {WITNESS.name} {encode(WITNESS.key_id + bytes(71))}\n".encode(),
    ],
)
async def test_invalid_cosignature_is_reported(connect: Callable[..., WitnessClient], body: bytes) -> None:
    with Receiver(Answer(200, body=body), Answer(200, body=cosign(LOG.text(9)).encode())) as witness:
        client = connect(f"http://127.0.0.1:{witness.port}")
        with pytest.raises(InvalidCosignature):
            await submit(client, 9)
        await submit(client, 9)
    assert witness.got[1].body == LOG.request(0, 9)


def test_published_cosignature_is_verified() -> None:
    """A checkpoint of a public log, with the cosignature of a public witness."""
    text = (
        "transparency.dev/armored-witness/firmware_transparency/ci/3\n59\n"
        "kOFMkeamIdrYFLx5zbWFhflak6dlEEDOU++fxYEZMBw=\n"
    )
    line = (
        "— ArmoredWitness-floral-sky x88LbQAAAABnGRrDEq4Tfy7IIVPqkdXbcufUkCzRRbE3fABZ/jvtg5aFHVMuMR8cV6dVqECDBiH1zRxhNaCQ"
        "OXSwNLSeJs+NzWt1BA==\n"
    )
    public = bytes.fromhex("e90299398a4d39d030da888a0923ecf16786881ac12243db73c9f0cf2a2d80e6")
    witness = Witness("http://witness.test", "ArmoredWitness-floral-sky", public)
    moment = datetime(2024, 10, 23, 15, 48, 19, tzinfo=UTC)
    assert verify_cosignature(witness, text, line.encode(), NOW) == Cosignature(line, moment)
    with pytest.raises(InvalidCosignature, match="is invalid"):
        verify_cosignature(witness, text.replace("59", "58"), line.encode(), NOW)


async def test_response_above_the_limit_is_unavailable(connect: Callable[..., WitnessClient]) -> None:
    with (
        Receiver(default=Answer(200, body=b"x" * (MAX_RESPONSE + 1))) as witness,
        pytest.raises(WitnessUnavailable, match=f"more than {MAX_RESPONSE} bytes"),
    ):
        await submit(connect(f"http://127.0.0.1:{witness.port}"), 9)


@pytest.mark.parametrize("answer", [Answer(500), Answer(302), Answer(200, body=b"x" * (MAX_RESPONSE + 1))])
async def test_latest_checkpoint_is_unavailable_after_an_error(
    connect: Callable[..., WitnessClient], answer: Answer
) -> None:
    with Receiver(default=answer) as witness:
        client = connect(f"http://127.0.0.1:{witness.port}")
        with pytest.raises(WitnessUnavailable):
            await client.fetch_latest(client.witnesses[0], LOG.origin)


async def test_unreachable_witness_is_unavailable(connect: Callable[..., WitnessClient]) -> None:
    with pytest.raises(WitnessUnavailable, match="cannot send the request: ConnectError"):
        await submit(connect("http://127.0.0.1:9"), 9)


async def test_slow_witness_does_not_delay_the_others_beyond_the_time_limit() -> None:
    never = threading.Event()
    with (
        Receiver(default=Answer(200, after=never)) as slow,
        Receiver(default=Answer(200, body=cosign(LOG.text(9)).encode())) as fast,
    ):
        witnesses = [replace(WITNESS, url=f"http://127.0.0.1:{one.port}") for one in (slow, fast)]
        client = WitnessClient(witnesses, seconds=0.3, clock=lambda: NOW)
        async with asyncio.timeout(10):
            first, second = await client.cosign_all(LOG.origin, LOG.checkpoint(9), 9, prover(LOG))
        await client.close()
    assert (first.witness, second.witness) == tuple(witnesses)
    assert (first.cosignature, second.error) == (None, None)
    assert isinstance(first.error, WitnessUnavailable)
    assert second.cosignature == Cosignature(cosign(LOG.text(9)), NOW)


async def test_error_of_the_proof_is_raised(connect: Callable[..., WitnessClient]) -> None:
    async def fail(old: int, new: int) -> Sequence[bytes]:
        raise LookupError

    with Receiver(default=Answer(409, SIZE, b"5\n")) as witness:
        client = connect(f"http://127.0.0.1:{witness.port}")
        with pytest.raises(ExceptionGroup) as group:
            await client.cosign_all(LOG.origin, LOG.checkpoint(9), 9, fail)
    assert group.group_contains(LookupError)
