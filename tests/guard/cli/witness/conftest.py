from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from support.transparency_logs import SignedLog

from toolgate_cli.witness.cosigner import Cosigner
from toolgate_cli.witness.keys import WitnessKey
from toolgate_cli.witness.logs import parse_logs
from toolgate_cli.witness.state import WitnessState


@pytest.fixture
def log() -> SignedLog:
    return SignedLog(40)


@pytest.fixture
def key() -> WitnessKey:
    return WitnessKey("example.com/witness", Ed25519PrivateKey.from_private_bytes(bytes([7] * 32)))


@pytest.fixture
def state(tmp_path: Path, key: WitnessKey) -> Iterator[WitnessState]:
    made = WitnessState(tmp_path / "witness.sqlite", key.vkey)
    yield made
    made.close()


@pytest.fixture
def cosigner(log: SignedLog, key: WitnessKey, state: WitnessState) -> Cosigner:
    return Cosigner(key, parse_logs([log.vkey]), state, clock=lambda: 1_700_000_000.9)
