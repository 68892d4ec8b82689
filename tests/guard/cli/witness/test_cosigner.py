"""Every status of `add-checkpoint`, and the checkpoint for monitors."""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from support.transparency_logs import SignedLog, encode, verifier_key

from toolgate_cli.log.verification.notes import Key, open_note
from toolgate_cli.witness.cosigner import Cosigner, Reply, hash_origin
from toolgate_cli.witness.keys import WitnessKey
from toolgate_cli.witness.logs import parse_logs
from toolgate_cli.witness.state import StateError, WitnessState

# A published sequence of requests to a witness (litewitness of filippo.io/torchwood).
SIGSUM_ORIGIN = "sigsum.org/v1/tree/4d6d8825a6bb689d459628312889dfbb0bcd41b5211d9e1ce768b0ff0309e562"
SIGSUM_PUBLIC = bytes.fromhex("ffdc2d4d98e4124d3feaf788c0c2f9abfd796083d1f0495437f302ec79cf100f")
SIGSUM_FIRST = (
    "old 0\n\n{origin}\n1\nKgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n— {origin} "
    "UgIom7fPZTqpxWWhyjWduBvTvGVqsokMbqTArsQilegKoFBJQjUFAmQ0+YeSPM3wfUQMFSzVnnNuWRTYrajXpNUbIQY=\n"
)
SIGSUM_THIRD = (
    "old 1\nKgEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n{last}\n\n{origin}\n3\n"
    "RcCI1Nk56ZcSmIEfIn0SleqtV7uvrlXNccFx595Iwl0=\n\n— {origin} "
    "UgIom2VbtIcdFbwFAy1n7s6IkAxIY6J/GQOTuZF2ORV39d75cbAj2aQYwyJre36kezNobZs4SUUdrcawfAB8WVrx6go=\n"
)
SIGSUM_FIFTH = (
    "old 1\nKgEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n+fUDV+k970B4I3uKrqJM4aP1lloPZP8mvr2Z4wRw2LI=\n"
    "KgQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n{origin}\n5\nQrtXrQZCCvpIgsSmOsah7HdICzMLLyDfxToMql9WTjY=\n\n"
    "— {origin} UgIomw/EOJmWi0i1FQsOj+etB7F8IccFam/jgd6wzRns4QPVmyEZtdvl1U2KEmLOZ/ASRcWJi0tW90dJWAShei7sDww=\n"
)


def is_cosigned(reply: Reply, key: WitnessKey, text: str) -> bool:
    """Return whether the reply is one valid cosignature of the text at the time of the clock."""
    assert (reply.status, reply.body.count("\n")) == (HTTPStatus.OK, 1), reply
    return open_note(f"{text}\n{reply.body}", [Key.parse(key.vkey)]) == (text, {key.vkey: 1_700_000_000})


def test_consistent_checkpoints_are_cosigned(cosigner: Cosigner, key: WitnessKey, log: SignedLog) -> None:
    for old, size in ((0, 1), (1, 1), (1, 2), (2, 7), (7, 8), (8, 33), (33, 40)):
        assert is_cosigned(cosigner.add_checkpoint(log.request(old, size)), key, log.text(size))


def test_published_requests_have_the_published_statuses(key: WitnessKey, state: WitnessState) -> None:
    cosigner = Cosigner(key, parse_logs([verifier_key(SIGSUM_ORIGIN, 1, SIGSUM_PUBLIC)]), state)

    def ask(
        template: str,
        *,
        origin: str = SIGSUM_ORIGIN,
        last: str = "KgIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    ) -> int:
        return cosigner.add_checkpoint(template.format(origin=origin, last=last).encode()).status

    assert ask(SIGSUM_FIRST) == 200
    assert ask(SIGSUM_THIRD, origin=SIGSUM_ORIGIN[:-1] + "3") == 404
    assert ask(SIGSUM_THIRD, last="KgIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABA=") == 422
    assert ask(SIGSUM_THIRD) == 200
    assert ask(SIGSUM_FIFTH) == 409


def test_published_larger_checkpoint_is_cosigned(key: WitnessKey, state: WitnessState) -> None:
    cosigner = Cosigner(key, parse_logs([verifier_key(SIGSUM_ORIGIN, 1, SIGSUM_PUBLIC)]), state)
    for template in (SIGSUM_FIRST, SIGSUM_FIFTH):
        assert cosigner.add_checkpoint(template.format(origin=SIGSUM_ORIGIN).encode()).status == 200


def test_other_old_size_gets_the_latest_size(cosigner: Cosigner, log: SignedLog) -> None:
    assert cosigner.add_checkpoint(log.request(5, 7)) == Reply(HTTPStatus.CONFLICT, "0\n", "text/x.tlog.size")
    cosigner.add_checkpoint(log.request(0, 7))
    for old, size in ((0, 7), (0, 9), (5, 7), (8, 9), (7 - 1, 6)):
        reply = cosigner.add_checkpoint(log.request(old, size))
        assert reply == Reply(HTTPStatus.CONFLICT, "7\n", "text/x.tlog.size")


def test_old_size_above_the_size_is_a_bad_request(cosigner: Cosigner, log: SignedLog) -> None:
    cosigner.add_checkpoint(log.request(0, 7))
    assert cosigner.add_checkpoint(log.request(7, 6, proof=[])).status == 400
    assert cosigner.add_checkpoint(log.request(0, 3).replace(b"old 0", b"old 4")).status == 400


def test_unknown_origin_is_not_found(cosigner: Cosigner) -> None:
    other = SignedLog(3, origin="other.example.com/log")
    assert cosigner.add_checkpoint(other.request(0, 3)).status == 404


def test_checkpoint_without_a_signature_of_a_trusted_key_is_forbidden(
    cosigner: Cosigner, log: SignedLog
) -> None:
    other = SignedLog(3, seed=bytes(32))
    assert other.vkey != log.vkey
    assert cosigner.add_checkpoint(other.request(0, 3)).status == 403


def test_one_invalid_signature_of_a_trusted_key_is_forbidden(cosigner: Cosigner, log: SignedLog) -> None:
    body = log.request(0, 3).decode() + log.sign("another text\n")
    reply = cosigner.add_checkpoint(body.encode())
    assert (reply.status, reply.body) == (403, f"the signature of '{log.origin}' is invalid\n")


def test_signatures_of_unknown_keys_are_ignored(cosigner: Cosigner, key: WitnessKey, log: SignedLog) -> None:
    """Lines with the same name or the same id as a known key are unknown keys, too."""
    known = bytes.fromhex(log.vkey.split("+")[1])
    lines = [
        f"— {log.origin} {encode(bytes(68))}\n",
        f"— other.example.com {encode(known + bytes(64))}\n",
        *(f"— pq.example.com/{index} {encode(bytes(2432))}\n" for index in range(14)),
    ]
    body = log.request(0, 3) + "".join(lines).encode()
    assert is_cosigned(cosigner.add_checkpoint(body), key, log.text(3))


def test_any_trusted_key_of_the_log_is_accepted(key: WitnessKey, state: WitnessState, log: SignedLog) -> None:
    successor = SignedLog(40, seed=bytes(32))
    cosigner = Cosigner(key, parse_logs([log.vkey, successor.vkey]), state)
    assert cosigner.add_checkpoint(log.request(0, 3)).status == 200
    assert cosigner.add_checkpoint(successor.request(3, 9)).status == 200


def test_key_with_another_name_than_the_origin_is_accepted(key: WitnessKey, state: WitnessState) -> None:
    vkey = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8 go.sum database tree"
    body = (
        "old 0\n\ngo.sum database tree\n35225469\nvt5T6GaLCXvyHFl9VUvvItR43XZxfLgftEcTyO3eJCQ=\n\n— sum.golang.org "
        "Az3grpukl5AXaVfYkLiDGORx/DN2nlcS5kZHR5uYOBV2KA2HgXpD+gu9HHONebHLAyaKbbTM75QTtPydhKCExixSfwQ=\n"
    )
    assert Cosigner(key, parse_logs([vkey]), state).add_checkpoint(body.encode()).status == 200


def test_extension_lines_are_cosigned(cosigner: Cosigner, key: WitnessKey, log: SignedLog) -> None:
    text = f"{log.text(3)}an extension\n"
    reply = cosigner.add_checkpoint(f"old 0\n\n{text}\n{log.sign(text)}".encode())
    assert is_cosigned(reply, key, text)


def test_invalid_proofs_are_unprocessable(cosigner: Cosigner, log: SignedLog) -> None:
    cosigner.add_checkpoint(log.request(0, 7))
    proof = log.proof(7, 9)
    for wrong in ([], proof[:-1], [*proof, proof[0]], proof[::-1], log.proof(6, 9)):
        assert cosigner.add_checkpoint(log.request(7, 9, proof=wrong)).status == 422
    assert cosigner.add_checkpoint(log.request(7, 9)).status == 200


def test_proof_from_the_empty_tree_is_unprocessable(cosigner: Cosigner, log: SignedLog) -> None:
    assert cosigner.add_checkpoint(log.request(0, 7, proof=[bytes(32)])).status == 422


def test_proof_for_the_same_size_is_unprocessable(cosigner: Cosigner, log: SignedLog) -> None:
    cosigner.add_checkpoint(log.request(0, 7))
    assert cosigner.add_checkpoint(log.request(7, 7, proof=[bytes(32)])).status == 422


def test_other_root_of_the_same_size_is_unprocessable(cosigner: Cosigner, log: SignedLog) -> None:
    cosigner.add_checkpoint(log.request(0, 7))
    assert cosigner.add_checkpoint(log.fork(4).request(7, 7)).status == 422
    assert cosigner.add_checkpoint(log.request(7, 7)).status == 200


def test_fork_is_unprocessable(cosigner: Cosigner, log: SignedLog) -> None:
    cosigner.add_checkpoint(log.request(0, 7))
    fork = log.fork(4)
    assert cosigner.add_checkpoint(fork.request(7, 9)).status == 422


def test_checkpoint_of_an_empty_log(cosigner: Cosigner, key: WitnessKey, log: SignedLog) -> None:
    text = f"{log.origin}\n0\n{encode(bytes(32))}\n"
    assert cosigner.add_checkpoint(f"old 0\n\n{text}\n{log.sign(text)}".encode()).status == 422
    assert is_cosigned(cosigner.add_checkpoint(log.request(0, 0)), key, log.text(0))
    assert is_cosigned(cosigner.add_checkpoint(log.request(0, 3)), key, log.text(3))


@pytest.mark.parametrize(
    "change",
    [
        lambda body: b"",
        lambda body: b"\n\n",
        lambda body: body[:-1],
        lambda body: body.replace(b"old 3", b"old 03"),
        lambda body: body.replace(b"old 3", b"old -3"),
        lambda body: body.replace(b"old 3", b"old  3"),
        lambda body: body.replace(b"old 3", b"old"),
        lambda body: body.replace(b"old 3", b"new 3"),
        lambda body: body.replace(b"old 3", b"old 99999999999999999999"),
        lambda body: body.replace(b"old 3", "old ٣".encode()),
        lambda body: body.replace(b"\n", b"\r\n"),
        lambda body: body.replace(b"\n\n", b"\nYWJj\n\n", 1),
        lambda body: body.replace(b"\n\n", b"\n\n\n", 1),
        lambda body: body.replace(b"\n9\n", b"\n09\n"),
        lambda body: body.replace(b"\n\n", b"\n" + encode(bytes(32)).encode() + b"=\n\n", 1),
        lambda body: body.replace(b"old 3\n", b"old 3\n" + encode(bytes(32)).encode() * 62, 1),
        lambda body: body.replace(b"old 3\n", b"old 3\n" + (encode(bytes(32)) + "\n").encode() * 62, 1),
        lambda body: b"\x00" * 1000,
        lambda body: b"\xff\xfe",
        lambda body: body.partition(b"\n\n")[0] + b"\n\n",
        lambda body: body + b"\xe2\x80\x94 a YWI=\n",
        lambda body: body + b"\xe2\x80\x94 a YWJjZGVmZw==\n" * 100,
        lambda body: body.replace(b"\n9\n", b"\n9223372036854775808\n"),
    ],
)
def test_malformed_body_is_a_bad_request(cosigner: Cosigner, log: SignedLog, change: Any) -> None:
    cosigner.add_checkpoint(log.request(0, 3))
    reply = cosigner.add_checkpoint(change(log.request(3, 9)))
    assert (reply.status, reply.body.count("\n")) == (400, 1)


def test_63_hashes_are_accepted_by_the_parser(cosigner: Cosigner, log: SignedLog) -> None:
    cosigner.add_checkpoint(log.request(0, 3))
    assert cosigner.add_checkpoint(log.request(3, 9, proof=[bytes(32)] * 63)).status == 422


def test_monitors_get_the_latest_checkpoint(cosigner: Cosigner, key: WitnessKey, log: SignedLog) -> None:
    path = hash_origin(log.origin)
    assert cosigner.get_checkpoint(path).status == 404
    assert cosigner.get_checkpoint(hash_origin("other.example.com/log")).status == 404
    cosigner.add_checkpoint(log.request(0, 3))
    cosigned = cosigner.add_checkpoint(log.request(3, 9) + f"— unknown {encode(bytes(68))}\n".encode())
    cosigner.add_checkpoint(log.fork(4).request(9, 12))
    reply = cosigner.get_checkpoint(path)
    assert (reply.status, reply.body) == (200, log.checkpoint(9) + cosigned.body)
    assert open_note(reply.body, [Key.parse(key.vkey), Key.parse(log.vkey)])[1].keys() == {log.vkey, key.vkey}


def test_only_one_of_two_forks_is_cosigned_under_64_threads(
    tmp_path: Path, key: WitnessKey, log: SignedLog
) -> None:
    """Half of the threads use another connection to the same file, as another process does."""
    states = [WitnessState(tmp_path / "witness.sqlite", key.vkey) for _ in range(2)]
    cosigners = [Cosigner(key, parse_logs([log.vkey]), state) for state in states]
    forks = log, log.fork(4)
    assert cosigners[0].add_checkpoint(log.request(0, 4)).status == 200
    barrier = threading.Barrier(64)

    def submit(index: int) -> tuple[int, int]:
        """Submit one checkpoint of a fork, with a proof from the size that the witness returns."""
        fork, size, old = index % 2, 9 + index // 2, 4
        barrier.wait(30)
        while True:
            reply = cosigners[index // 2 % 2].add_checkpoint(forks[fork].request(old, size))
            if reply.status != HTTPStatus.CONFLICT or int(reply.body) > size:
                return fork, reply.status
            old = int(reply.body)

    with ThreadPoolExecutor(64) as pool:
        results = list(pool.map(submit, range(64)))
    for state in states:
        state.close()
    assert len({fork for fork, status in results if status == HTTPStatus.OK}) == 1
    assert {status for _, status in results} <= {200, 409, 422}


def test_nothing_is_cosigned_if_the_state_cannot_be_written(
    cosigner: Cosigner, state: WitnessState, log: SignedLog, tmp_path: Path
) -> None:
    cosigner.add_checkpoint(log.request(0, 3))
    state._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(sqlite3.OperationalError):
        cosigner.add_checkpoint(log.request(3, 9))
    state._connection.execute("PRAGMA query_only = OFF")
    assert cosigner.add_checkpoint(log.request(3, 9)).status == 200


def test_state_of_another_key_is_rejected(tmp_path: Path, key: WitnessKey, state: WitnessState) -> None:
    with pytest.raises(StateError, match=r"is the state of the witness example\.com/witness\+"):
        WitnessState(tmp_path / "witness.sqlite", "another key")


def test_file_that_is_not_a_database_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text("not a database" * 100)
    with pytest.raises(StateError, match="cannot use"):
        WitnessState(path, "key")


def test_commits_are_synchronous(state: WitnessState) -> None:
    """The value 2 of `synchronous` is FULL."""
    assert state._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert state._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
