"""Receipts of single rows."""

from base64 import b64encode
from pathlib import Path
from random import Random

import pytest
from support.transparency import Export, LogBuilder, Signer, inclusion_path

from toolgate_cli.log.verification.notes import Key, VerificationError
from toolgate_cli.log.verification.receipts import verify_receipt
from toolgate_cli.log.verification.results import Result
from toolgate_cli.log.verification.state import State

EXPORT = LogBuilder(Random(4)).build(21).export(pending=False)
KEY = Key.parse(EXPORT.signer.vkey)


def receipt(export: Export = EXPORT, index: int = 5, leaf: bytes | None = None) -> str:
    hashes = "".join(f"{b64encode(each).decode()}\n" for each in inclusion_path(index, export.leaves))
    extra = b64encode(leaf or export.leaves[index]).decode()
    note = export.signer.checkpoint(export.leaves)
    return f"c2sp.org/tlog-proof@v1\nextra {extra}\nindex {index}\n{hashes}\n{note}"


def codes(result: Result) -> list[str]:
    return [each["code"] for each in result.findings]


@pytest.mark.parametrize("index", range(21))
def test_receipt_of_every_leaf_is_verified(index: int) -> None:
    result = verify_receipt(receipt(index=index).encode(), key=KEY)
    assert codes(result) == []
    assert result.leaf["v"] == 1
    assert "verified: receipt" in result.report()


def test_receipt_of_the_only_leaf_has_no_hashes() -> None:
    export = EXPORT.copy()
    export.leaves = export.leaves[:1]
    assert codes(verify_receipt(receipt(export, 0).encode(), key=KEY)) == []


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("index 5", "index 6", "proof"),
        ("index 5", "index 21", "proof"),
        ("index 5", "index 05", "receipt"),
        ("index 5", f"index {'9' * 5000}", "receipt"),
        ("index 5", "index -1", "receipt"),
        ("tlog-proof@v1", "tlog-proof@v2", "receipt"),
        ("extra ", "", "receipt"),
        ("extra ", "extra A", "receipt"),
        ("=\n", "\n", "receipt"),
        ("\n\n", "\n", "receipt"),
        ("\n21\n", "\n22\n", "checkpoint"),
        ("— ", "- ", "checkpoint"),
        ("\n", "\r\n", "receipt"),
    ],
)
def test_changed_receipt_is_found(old: str, new: str, code: str) -> None:
    text = receipt()
    assert old in text
    assert codes(verify_receipt(text.replace(old, new).encode(), key=KEY)) == [code]


def test_leaf_of_another_index_is_found() -> None:
    assert codes(verify_receipt(receipt(leaf=EXPORT.leaves[6]).encode(), key=KEY)) == ["proof"]


def test_every_changed_byte_is_found_or_harmless() -> None:
    """Only signature lines of other keys and nothing else may change."""
    content, random = receipt().encode(), Random(2)
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] = random.choice(sorted(set(b'\x00\n "A=/\xff') - {content[at]}))
        assert codes(verify_receipt(bytes(changed), key=KEY)), (at, bytes(changed))


@pytest.mark.parametrize(
    "text", [b"", b"\xff", b"\n\n\n", b"c2sp.org/tlog-proof@v1\n", b"c2sp.org/tlog-proof@v1\n" * 9999]
)
def test_other_texts_are_not_receipts(text: bytes) -> None:
    assert codes(verify_receipt(text, key=KEY)) == ["receipt"]


def test_key_of_a_receipt_must_be_known(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="--key"):
        verify_receipt(receipt().encode())
    state = State(tmp_path / "state.json")
    assert codes(verify_receipt(receipt().encode(), key=KEY, state=state)) == []
    assert codes(verify_receipt(receipt().encode(), state=State(tmp_path / "state.json"))) == []
    other = Key.parse(Signer(EXPORT.origin, bytes(32)).vkey)
    assert codes(verify_receipt(receipt().encode(), key=other, state=state)) == ["key", "checkpoint"]


def test_receipt_of_a_fork_is_found(tmp_path: Path) -> None:
    state = State(tmp_path / "state.json")
    verify_receipt(receipt().encode(), key=KEY, state=state)
    fork = EXPORT.copy()
    fork.leaves[7] = fork.leaves[8]
    assert codes(verify_receipt(receipt(fork).encode(), key=KEY, state=state)) == ["fork"]
    fork.leaves.pop()
    result = verify_receipt(receipt(fork).encode(), key=KEY, state=state)
    assert codes(result) == []
    assert "the state file contains no checkpoint with 20 leaves" in result.report()
