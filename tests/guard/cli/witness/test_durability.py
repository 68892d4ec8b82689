"""Restarts and kills of a witness process: it never cosigns two forks."""

import os
import random
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from support.transparency_logs import SignedLog
from support.witness_server import ServedWitness

# A witness that kills itself after a checkpoint was stored and before the response is sent.
KILLED_BEFORE_THE_RESPONSE = """
import os, signal, sys
from toolgate_cli.app import app
from toolgate_cli.witness.cosigner import Cosigner

add_checkpoint = Cosigner.add_checkpoint

def add_and_die(self, body):
    reply = add_checkpoint(self, body)
    os.kill(os.getpid(), signal.SIGKILL)
    return reply

Cosigner.add_checkpoint = add_and_die
app(sys.argv[1:])
"""


def test_restart_keeps_the_state(tmp_path: Path) -> None:
    log = SignedLog(12)
    with ServedWitness(tmp_path, log) as witness:
        assert witness.submit(log.request(0, 7)).status_code == 200
        witness.stop()
    with ServedWitness(tmp_path, log) as witness:
        assert (witness.submit(log.request(0, 9)).status_code, witness.submit(log.request(0, 9)).text) == (
            409,
            "7\n",
        )
        assert witness.submit(log.fork(3).request(7, 9)).status_code == 422
        assert witness.submit(log.request(7, 9)).status_code == 200


def test_kill_between_storage_and_response_does_not_allow_a_fork(tmp_path: Path) -> None:
    log = SignedLog(12)
    with ServedWitness(tmp_path, log) as witness:
        assert witness.submit(log.request(0, 4)).status_code == 200
        witness.stop()
    words = [
        "--key",
        str(tmp_path / "witness.key"),
        "--state",
        str(tmp_path / "witness.sqlite"),
        "--port",
        "0",
    ]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_BEFORE_THE_RESPONSE, "witness", "serve", "--log", log.vkey, *words],
        stderr=subprocess.PIPE,
        env=os.environ,
        text=True,
    ) as process:
        assert process.stderr is not None
        output = ""
        while "listening at " not in output:
            output = process.stderr.readline()
            assert output
        url = output.split("listening at ")[1].split(";")[0]
        try:
            httpx.post(f"{url}/add-checkpoint", content=log.request(4, 9), timeout=30, trust_env=False)
            raise AssertionError("the witness has responded")
        except httpx.RemoteProtocolError:
            assert process.wait(30) == -signal.SIGKILL
    with ServedWitness(tmp_path, log) as witness:
        fork = log.fork(5)
        conflict = witness.submit(fork.request(4, 9))
        assert (conflict.status_code, conflict.text) == (409, "9\n")
        assert witness.submit(fork.request(9, 9)).status_code == 422
        assert witness.submit(fork.request(9, 12)).status_code == 422
        assert witness.submit(log.request(9, 9)).status_code == 200


def test_kills_at_any_time_do_not_allow_a_fork(tmp_path: Path) -> None:
    """Two clients submit two forks, with retries, while the witness is killed and started again."""
    log = SignedLog(60)
    forks = [log, log.fork(4)]
    cosigned: list[set[int]] = [set(), set()]
    chance = random.Random(11)

    def submit(fork: int, witness: ServedWitness, requests: int) -> None:
        old = 4
        for size in range(9, 9 + requests):
            try:
                reply = witness.submit(forks[fork].request(old, max(size, old)))
            except httpx.TransportError:
                return
            assert reply.status_code in {200, 409, 422}
            if reply.status_code == 200:
                old = max(size, old)
                cosigned[fork].add(old)
            elif reply.status_code == 409:
                old = int(reply.text)

    for round_ in range(4):
        with ServedWitness(tmp_path, log) as witness, ThreadPoolExecutor(3) as pool:
            if round_ == 0:
                assert witness.submit(log.request(0, 4)).status_code == 200
            first = pool.submit(submit, 0, witness, 40)
            second = pool.submit(submit, 1, witness, 40)
            submit(chance.randrange(2), witness, chance.randrange(1, 12))
            witness.process.kill()
            first.result(60)
            second.result(60)
    assert min(map(len, cosigned)) == 0
    assert max(map(len, cosigned)) > 0


def test_two_processes_with_one_state_cosign_only_one_fork(tmp_path: Path) -> None:
    """64 clients submit two forks at the same time, and retry with the size that a witness returns."""
    log = SignedLog(45)
    forks = [log, log.fork(4)]
    with ServedWitness(tmp_path, log) as one, ServedWitness(tmp_path, log) as other:
        assert one.submit(log.request(0, 4)).status_code == 200
        barrier = threading.Barrier(64)

        def submit(index: int) -> tuple[int, int]:
            fork, size, old = index % 2, 9 + index // 2, 4
            witness = (one, other)[index // 2 % 2]
            barrier.wait(60)
            while True:
                reply = witness.submit(forks[fork].request(old, size))
                if reply.status_code != 409 or int(reply.text) > size:
                    return fork, reply.status_code
                old = int(reply.text)

        with ThreadPoolExecutor(64) as pool:
            results = list(pool.map(submit, range(64)))
        assert len({fork for fork, status in results if status == 200}) == 1
        assert {status for _, status in results} <= {200, 409, 422}
        assert (one.stop(), other.stop()) == ("", "")
