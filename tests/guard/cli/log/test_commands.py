"""`toolgate log` at a gateway and with files."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.pretend_gateway import PretendGateway
from support.transparency import ORGANIZATION, Export, LogBuilder, Signer, mth

LOG = LogBuilder(Random(8)).build(300)
DECISION = "0199a3f2-4b1c-7000-8000-000000000001"
PREFIX = f"/tlog/{ORGANIZATION}/production"
EXPORT, CHECKPOINT = ("GET", "/api/transparency/export"), ("GET", f"{PREFIX}/checkpoint")
STATUS = {
    "origin": LOG.signer.name,
    "vkey": LOG.signer.vkey,
    "size": 300,
    "root": "AAAA",
    "checkpoint": None,
    "sealed_at": "2026-11-28T11:00:00.123456Z",
    "pending": 2,
    "problem": "the database was restored",
    "witnesses": ["witness.example"],
}

Run = Callable[..., Any]


@pytest.fixture
def export() -> Export:
    return LOG.export(pending=False)


def serve(gateway: PretendGateway, export: Export, published: int) -> None:
    """Serve an export, and a checkpoint and tiles of another size."""
    leaves = LOG.leaves[:published]
    gateway.answers["GET", "/api/transparency"] = 200, STATUS
    gateway.raw[EXPORT] = b"".join(export.lines())
    gateway.answers[EXPORT] = gateway.answers[CHECKPOINT] = 200, None
    gateway.raw[CHECKPOINT] = export.signer.checkpoint(leaves)
    for number, width in [(0, 256), (1, published - 256)]:
        start = number * 256
        path = f"{PREFIX}/tile/0/00{number}" + (f".p/{width}" if width < 256 else "")
        gateway.answers["GET", path] = 200, None
        gateway.raw["GET", path] = b"".join(mth([leaf]) for leaf in leaves[start : start + width])
    gateway.answers["GET", f"{PREFIX}/tile/1/000.p/1"] = 200, None
    gateway.raw["GET", f"{PREFIX}/tile/1/000.p/1"] = mth(leaves[:256])


def part(export: Export, size: int) -> Export:
    """Return an export from when the log had a smaller size; later leaves are pending."""
    earlier = export.copy()
    earlier.leaves, earlier.pending = export.leaves[:size], export.leaves[size:]
    times = [json.loads(leaf)["at"] for leaf in earlier.pending]
    earlier.exported_at = min([export.exported_at, *times])
    return earlier


@pytest.mark.parametrize("published", [257, 290, 300])
def test_online_verification_compares_the_published_checkpoint(
    run: Run, gateway: PretendGateway, export: Export, tmp_path: Path, published: int
) -> None:
    serve(gateway, export, published)
    done = run("log", "verify", "--state", str(tmp_path / "state.json"), "--json")
    assert (done.exit_code, json.loads(done.stdout)["verified"]) == (0, True), done.output
    tokens = {path: token for _, path, _, token, _ in gateway.sent}
    assert (tokens[EXPORT[1]], tokens[CHECKPOINT[1]]) == ("stored-token", "")
    [log] = json.loads((tmp_path / "state.json").read_text())["logs"].values()
    assert [each["size"] for each in log["checkpoints"]] == sorted({published, 300})


def test_published_checkpoint_that_is_ahead_is_compared_by_tiles(
    run: Run, gateway: PretendGateway, export: Export, tmp_path: Path
) -> None:
    serve(gateway, part(export, 299), 300)
    done = run("log", "verify", "--state", str(tmp_path / "state.json"))
    assert done.exit_code == 0, done.output
    [log] = json.loads((tmp_path / "state.json").read_text())["logs"].values()
    assert [each["size"] for each in log["checkpoints"]] == [299, 300]


@pytest.mark.parametrize("size", [299, 300])
def test_published_checkpoint_of_a_fork_is_found(
    run: Run, gateway: PretendGateway, export: Export, size: int
) -> None:
    serve(gateway, part(export, size), 300)
    leaves = [*LOG.leaves[:298], LOG.leaves[299], LOG.leaves[298]]
    gateway.raw[CHECKPOINT] = export.signer.checkpoint(leaves)
    done = run("log", "verify")
    assert done.exit_code == 1
    assert "[fork]" in done.stdout


def test_missing_published_checkpoint_is_found(run: Run, gateway: PretendGateway, export: Export) -> None:
    serve(gateway, export, 300)
    gateway.answers[CHECKPOINT] = 503, None
    gateway.raw[CHECKPOINT] = "The database was restored.\n"
    done = run("log", "verify")
    assert done.exit_code == 1
    assert "status 503, The database was restored" in done.stdout


def test_malformed_tile_ends_with_an_error(run: Run, gateway: PretendGateway, export: Export) -> None:
    serve(gateway, part(export, 299), 300)
    gateway.raw["GET", f"{PREFIX}/tile/0/001.p/44"] = b"x"
    done = run("log", "verify")
    assert done.exit_code == 1
    assert "toolgate: the gateway sent an invalid tile" in done.stderr


def test_export_that_ends_early_is_found(run: Run, gateway: PretendGateway, export: Export) -> None:
    serve(gateway, export, 300)
    gateway.raw[EXPORT] = b"".join(export.lines())[:-9]
    done = run("log", "verify")
    assert done.exit_code == 1
    assert "[truncated]" in done.stdout


@pytest.mark.parametrize("origin", ["gate.example.test", "gate.example.test/tlog/../admin?x", ""])
def test_invalid_origin_is_refused(run: Run, gateway: PretendGateway, export: Export, origin: str) -> None:
    serve(gateway, export, 300)
    gateway.answers["GET", "/api/transparency"] = 200, STATUS | {"origin": origin}
    done = run("log", "verify")
    assert done.exit_code == 1
    assert "invalid origin" in done.stderr


def test_exported_file_is_verified_without_a_gateway(
    run: Run, gateway: PretendGateway, export: Export, tmp_path: Path
) -> None:
    serve(gateway, export, 300)
    path = tmp_path / "export.ndjson"
    assert run("log", "export", "-o", str(path), "--environment", "production").exit_code == 0
    assert path.read_bytes() == gateway.raw[EXPORT]
    assert "--force" in run("log", "export", "-o", str(path)).stderr
    assert run("log", "export").stdout_bytes == gateway.raw[EXPORT]
    sent = len(gateway.sent)
    assert "verified: export" in run("log", "verify", str(path)).stdout
    assert "verified: export" in run("log", "verify", "-", typed=path.read_text()).stdout
    assert len(gateway.sent) == sent


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 0),
        (["--fail-on-gaps"], 1),
        (["--key", Signer(LOG.signer.name, bytes(32)).vkey], 1),
        (["--key", "x"], 2),
        (["--witness", Signer("witness.example", bytes(32), 4).vkey], 1),
        (["--witness", Signer("witness.example", bytes(32), 4).vkey, "--witnesses", "0"], 0),
        (["--witnesses", "1"], 2),
        (["--state", "/"], 2),
        (["--unknown"], 2),
    ],
)
def test_exit_codes(run: Run, export: Export, tmp_path: Path, arguments: list[str], code: int) -> None:
    path = tmp_path / "export.ndjson"
    path.write_bytes(b"".join(export.lines()))
    assert run("log", "verify", str(path), *arguments).exit_code == code


@pytest.mark.parametrize("path", ["missing", "/", "a\0b"])
def test_file_that_cannot_be_read_ends_with_2(run: Run, path: str) -> None:
    done = run("log", "verify", path)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("kind", "resource"), [("entry", "logs"), ("decision", "decisions"), ("approval", "approvals")]
)
def test_receipt_is_written(
    run: Run, gateway: PretendGateway, tmp_path: Path, kind: str, resource: str
) -> None:
    path = ("GET", f"/api/{resource}/{DECISION}/receipt")
    gateway.answers[path], gateway.raw[path] = (200, None), "c2sp.org/tlog-proof@v1\n"
    target = tmp_path / "receipt.tlog-proof"
    assert run("log", "receipt", kind, DECISION, "-o", str(target)).exit_code == 0
    assert target.read_text() == "c2sp.org/tlog-proof@v1\n"
    assert run("log", "receipt", kind, DECISION).stdout == "c2sp.org/tlog-proof@v1\n"
    done = run("log", "verify", str(target))
    assert (done.exit_code, "NOT VERIFIED" in done.stdout) == (1, True)


def test_receipt_of_a_row_that_is_not_sealed_is_requested_again(run: Run, gateway: PretendGateway) -> None:
    path = ("GET", f"/api/decisions/{DECISION}/receipt")
    answers = iter([(409, {"detail": "not sealed"}), (409, {"detail": "not sealed"}), (200, {"ok": True})])
    gateway.answers[path] = lambda: next(answers)
    gateway.headers[path] = {"Retry-After": "0"}
    assert run("log", "receipt", "decision", DECISION).stdout == '{"ok": true}'
    gateway.answers[path] = 409, {"detail": "not sealed"}
    done = run("log", "receipt", "decision", DECISION)
    assert (done.exit_code, "not in the log yet" in done.stderr) == (1, True)


def test_receipt_of_an_unknown_row_is_an_error(run: Run, gateway: PretendGateway) -> None:
    gateway.answers["GET", f"/api/decisions/{DECISION}/receipt"] = 404, {"detail": "Decision not found"}
    done = run("log", "receipt", "decision", DECISION)
    assert (done.exit_code, "Decision not found" in done.stderr) == (1, True)
    assert run("log", "receipt", "decision", "0199").exit_code == 1
    assert run("log", "receipt", "vote", DECISION).exit_code == 2


def test_status_is_shown(run: Run, gateway: PretendGateway) -> None:
    gateway.answers["GET", "/api/transparency"] = 200, STATUS
    shown = run("log", "status").stdout
    for text in (
        STATUS["origin"],
        STATUS["vkey"],
        "the database was restored",
        "witness.example",
    ):
        assert str(text) in " ".join(shown.split())
    assert json.loads(run("log", "status", "--json").stdout) == STATUS
    assert gateway.sent[-1][2] == {"environment": "production"}
