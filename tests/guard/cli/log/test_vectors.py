"""The verifier agrees with test vectors with which independent programs agree."""

from base64 import b64decode
from typing import Any

import pytest
from support.tlog_vectors import VECTORS, content

from toolgate_cli.log.verification.notes import Key, VerificationError, open_checkpoint
from toolgate_cli.log.verification.receipts import verify_receipt

KEY = Key.parse(VECTORS["keys"]["vkey"])
WITNESS = Key.parse(VECTORS["keys"]["witness"]["vkey"])


def vectors(format_: str, kind: str) -> Any:
    return pytest.mark.parametrize("vector", VECTORS[format_][kind], ids=lambda vector: vector["name"])


@vectors("checkpoints", "valid")
def test_a_valid_checkpoint_is_accepted(vector: dict[str, Any]) -> None:
    checkpoint = open_checkpoint(content(vector).decode(), KEY)
    assert (checkpoint.size, checkpoint.root) == (vector["size"], b64decode(vector["root"]))


@pytest.mark.parametrize(
    "vector",
    # Extension lines are allowed in general; the gateway writes none.
    [vector for vector in VECTORS["checkpoints"]["invalid"] if vector["name"] != "extension line"],
    ids=lambda vector: vector["name"],
)
def test_an_invalid_checkpoint_is_rejected(vector: dict[str, Any]) -> None:
    with pytest.raises(VerificationError):
        open_checkpoint(content(vector).decode(), KEY)


@vectors("cosignatures", "valid")
def test_a_cosignature_is_accepted(vector: dict[str, Any]) -> None:
    assert len(open_checkpoint(content(vector).decode(), KEY, [WITNESS]).witnesses) == 1


@vectors("cosignatures", "invalid")
def test_an_invalid_cosignature_does_not_count(vector: dict[str, Any]) -> None:
    try:
        checkpoint = open_checkpoint(content(vector).decode(), KEY, [WITNESS])
    except VerificationError:
        return
    assert len(checkpoint.witnesses) == 0


@vectors("proofs", "invalid")
def test_an_invalid_proof_is_rejected(vector: dict[str, Any]) -> None:
    try:
        result = verify_receipt(content(vector), key=KEY)
    except VerificationError:
        return
    assert result.findings


@vectors("proofs", "valid")
def test_a_valid_proof_is_not_rejected_for_its_hashes(vector: dict[str, Any]) -> None:
    """The leaves of the vectors are not leaves of a gateway, which is the only finding."""
    assert set(verify_receipt(content(vector), key=KEY).codes) <= {"leaf"}
