"""Every implementation agrees with the test vectors: the independent verifier `logcheck` and the sample log."""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.log_checker import LogRejectedError, check_checkpoint, check_log, check_note, check_proof
from support.sample_log import ORIGIN, WITNESS, SampleLog, large_log, signature_line, tile_path, verifier_key
from support.tlog_vectors import VECTORS, content

# The first test builds the verifier with a Go toolchain of 75 MB, which takes half a minute.
pytestmark = pytest.mark.slow

KEY: str = VECTORS["keys"]["vkey"]
WITNESS_KEY: str = VECTORS["keys"]["witness"]["vkey"]
Check = Callable[[Path, dict[str, Any]], dict[str, Any]]


def open_note(file: Path, vector: dict[str, Any]) -> dict[str, Any]:
    return check_note(file, vector.get("vkey", KEY))


def open_checkpoint(file: Path, vector: dict[str, Any]) -> dict[str, Any]:
    return check_checkpoint(file, KEY)


def open_cosigned(file: Path, vector: dict[str, Any]) -> dict[str, Any]:
    return check_checkpoint(file, KEY, witnesses=[WITNESS_KEY])


def open_proof(file: Path, vector: dict[str, Any]) -> dict[str, Any]:
    return check_proof(file, KEY)


CHECKS: dict[str, Check] = {
    "notes": open_note,
    "checkpoints": open_checkpoint,
    "cosignatures": open_cosigned,
    "proofs": open_proof,
}


def vectors(kind: str) -> list[Any]:
    return [
        pytest.param(format_, vector, id=f"{format_}-{vector['name']}".replace(" ", "_"))
        for format_ in CHECKS
        for vector in VECTORS[format_][kind]
    ]


@pytest.mark.parametrize(("format_", "vector"), vectors("valid"))
def test_checker_accepts_valid_vector(tmp_path: Path, format_: str, vector: dict[str, Any]) -> None:
    file = tmp_path / "file"
    file.write_bytes(content(vector))
    result = CHECKS[format_](file, vector)
    for name in ("size", "root", "index"):
        assert result.get(name) == vector.get(name, result.get(name))
    if "time" in vector:
        assert result["cosignatures"] == [{"witness": WITNESS, "time": vector["time"]}]
    if "leaf" in vector:
        assert b64decode(result["leaf"]).decode() == vector["leaf"]


@pytest.mark.parametrize(("format_", "vector"), vectors("invalid"))
def test_checker_rejects_invalid_vector(tmp_path: Path, format_: str, vector: dict[str, Any]) -> None:
    file = tmp_path / "file"
    file.write_bytes(content(vector))
    with pytest.raises(LogRejectedError):
        CHECKS[format_](file, vector)


@pytest.mark.parametrize("vector", VECTORS["vkeys"]["invalid"], ids=lambda vector: vector["name"])
def test_checker_rejects_invalid_verifier_key(tmp_path: Path, vector: dict[str, Any]) -> None:
    file = tmp_path / "file"
    file.write_bytes(content(VECTORS["notes"]["valid"][1]))
    with pytest.raises(LogRejectedError, match="verifier key"):
        check_note(file, vector["vkey"])


@pytest.mark.parametrize("vector", VECTORS["logs"], ids=lambda vector: vector["size"])
def test_sample_log_has_the_files_of_the_vector(tmp_path: Path, vector: dict[str, Any]) -> None:
    size = vector["size"]
    assert b64encode(large_log().root(size)).decode() == vector["root"]
    assert large_log().checkpoint(size) == vector["checkpoint"]
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in large_log().files(size).items()}
    assert vector["files"] in (digests, None)
    lines = "".join(f"{path} {digest}\n" for path, digest in sorted(digests.items()))
    assert hashlib.sha256(lines.encode()).hexdigest() == vector["files_digest"]
    assert (len(digests), sorted(path for path in digests if ".p" in path)) == (
        vector["number_of_files"],
        vector["partial"],
    )
    assert check_log(large_log().write(tmp_path, size), KEY)["root"] == vector["root"]


def test_sample_log_has_the_roots_and_proofs_of_the_vectors() -> None:
    tree = VECTORS["tree"]
    log = SampleLog([bytes.fromhex(leaf) for leaf in tree["leaves"]])
    assert [log.root(size).hex() for size in range(9)] == tree["roots"]
    for proof in tree["inclusion"]:
        assert [each.hex() for each in log.inclusion(proof["index"], proof["size"])] == proof["proof"]
    for proof in tree["consistency"]:
        assert [each.hex() for each in log.consistency(proof["old"], proof["size"])] == proof["proof"]
    for path in VECTORS["paths"]:
        assert tile_path(0, path["number"]) == path["path"]


def test_sample_log_has_the_keys_and_cosignatures_of_the_vectors() -> None:
    keys = VECTORS["keys"]
    seeds = [bytes.fromhex(each["seed"]) for each in (keys, keys["witness"])]
    assert verifier_key(keys["origin"], seeds[0]) == keys["vkey"]
    assert verifier_key(keys["witness"]["name"], seeds[1], 4) == keys["witness"]["vkey"]
    text = large_log().checkpoint(300).partition("\n\n")[0] + "\n"
    for vector in VECTORS["cosignatures"]["valid"]:
        assert signature_line(text, WITNESS, seeds[1], time=vector["time"]) == vector["line"]


def test_requests_to_a_witness_have_checkpoints_of_the_sample_log() -> None:
    accepted = [each for each in VECTORS["add_checkpoint"] if each["status"] == 200]
    assert {each["held"] for each in accepted} == {0, 255, 256, 300}
    for request in accepted:
        head, _, checkpoint = request["body"].partition("\n\n")
        size = int(checkpoint.split("\n")[1])
        proof = "".join(
            f"{b64encode(each).decode()}\n" for each in large_log().consistency(request["held"], size)
        )
        assert f"{head}\n" == f"old {request['held']}\n{proof}"
        assert checkpoint == large_log().checkpoint(size)
        assert checkpoint.startswith(f"{ORIGIN}\n")
