"""Random changes of requests: the witness always answers, and cosigns nothing that is inconsistent."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from support.transparency_logs import SignedLog

from toolgate_cli.witness.cosigner import Cosigner
from toolgate_cli.witness.keys import WitnessKey
from toolgate_cli.witness.logs import parse_logs
from toolgate_cli.witness.state import WitnessState

LOG = SignedLog(20)
FORK = LOG.fork(3)
PIECES = st.sampled_from(
    [b"", b"\n", b"\n\n", b"old ", b"0", b"9", b"=", b"\xe2\x80\x94 ", b"\x00", b"\xff", b" "]
)


def with_cosigner(use: Callable[[Cosigner], None]) -> None:
    key = WitnessKey("example.com/witness", Ed25519PrivateKey.from_private_bytes(bytes(32)))
    with TemporaryDirectory() as folder:
        state = WitnessState(Path(folder) / "state", key.vkey)
        try:
            use(Cosigner(key, parse_logs([LOG.vkey]), state))
        finally:
            state.close()


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_any_body_is_a_bad_request(body: bytes) -> None:
    def use(cosigner: Cosigner) -> None:
        assert cosigner.add_checkpoint(body).status == 400

    with_cosigner(use)


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 6), PIECES | st.binary(max_size=3)), max_size=3),
    st.integers(1, 20),
    st.booleans(),
)
def test_changed_request_is_answered(changes: list[tuple[int, int, bytes]], size: int, is_fork: bool) -> None:
    body = (FORK if is_fork else LOG).request(min(7, size), size)
    for start, length, piece in changes:
        body = body[:start] + piece + body[start + length :]

    def use(cosigner: Cosigner) -> None:
        assert cosigner.add_checkpoint(LOG.request(0, 7)).status == 200
        reply = cosigner.add_checkpoint(body)
        assert reply.status in {200, 400, 403, 404, 409, 422}
        if reply.status == 200:
            assert body.partition(b"\n\n")[2] == LOG.checkpoint(size).encode()

    with_cosigner(use)
