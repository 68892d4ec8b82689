"""`logcheck`, an independent verifier, accepts correct logs of every shape and rejects changed ones."""

import base64
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.log_checker import LogRejectedError, check_checkpoint, check_log, check_proof
from support.sample_log import (
    ORIGIN,
    WITNESS,
    WITNESS_SEED,
    SampleLog,
    large_log,
    remove_replaced_tiles,
    signature_line,
    tile_path,
    verifier_key,
)

# The first test builds the program with a Go toolchain of 75 MB, which takes half a minute.
pytestmark = pytest.mark.slow

LOG = SampleLog([b"entry %d" % number for number in range(700)])
FORK = SampleLog([*LOG.leaves[:100], b"another entry", *LOG.leaves[101:]])
SIZES = (0, 1, 2, 255, 256, 257, 300, 700)
KEY = verifier_key()
WITNESS_KEY = verifier_key(WITNESS, WITNESS_SEED, 4)


def write_older(folder: Path, log: SampleLog, *sizes: int) -> list[Path]:
    files = [folder / f"{size}.checkpoint" for size in sizes]
    for file, size in zip(files, sizes, strict=True):
        file.write_text(log.checkpoint(size), encoding="utf-8")
    return files


def replace(file: Path, old: bytes, new: bytes) -> None:
    content = file.read_bytes()
    assert content.count(old) == 1
    file.write_bytes(content.replace(old, new))


@pytest.mark.parametrize("size", [*SIZES, 70_000])
def test_correct_log_is_accepted(tmp_path: Path, size: int) -> None:
    result = check_log(large_log().write(tmp_path, size), KEY)
    assert (result["origin"], result["size"], result["proofs"]) == (ORIGIN, size, size)
    assert result["root"] == base64.b64encode(large_log().root(size)).decode()


def test_log_of_70000_entries_has_the_tiles_of_the_specification() -> None:
    files = large_log().files()
    names = [path for path in files if "entries" not in path]
    assert len([path for path in names if re.fullmatch(r"tile/0/\d{3}", path)]) == 273
    partial = [path for path in names if ".p" in path]
    assert partial == ["tile/0/273.p/112", "tile/1/001.p/17", "tile/2/000.p/1"]
    assert len(files["tile/1/000"]) == 8192
    assert tile_path(0, 1_234_067) == "tile/0/x001/x234/067"


def test_older_checkpoints_of_the_log_are_accepted(tmp_path: Path) -> None:
    for size in SIZES:
        LOG.write(tmp_path / "log", size)
    older = write_older(tmp_path, LOG, *SIZES)
    assert check_log(tmp_path / "log", KEY, older=older)["consistent_with"] == list(SIZES)
    remove_replaced_tiles(tmp_path / "log")
    assert not (tmp_path / "log/tile/0/000.p").exists()
    assert check_log(tmp_path / "log", KEY, older=older)["consistent_with"] == list(SIZES)


def test_missing_partial_tile_of_an_older_checkpoint_is_rejected(tmp_path: Path) -> None:
    LOG.write(tmp_path / "log", 300)
    [older] = write_older(tmp_path, LOG, 257)
    with pytest.raises(LogRejectedError, match=r"tile/0/001\.p/1: no such file"):
        check_log(tmp_path / "log", KEY, older=[older])


def test_older_checkpoint_of_a_fork_is_rejected(tmp_path: Path) -> None:
    LOG.write(tmp_path / "log")
    [same, other] = write_older(tmp_path, FORK, 100, 300)
    assert check_log(tmp_path / "log", KEY, older=[same])["consistent_with"] == [100]
    with pytest.raises(LogRejectedError, match="invalid transparency proof"):
        check_log(tmp_path / "log", KEY, older=[other])


def test_log_that_became_smaller_is_rejected(tmp_path: Path) -> None:
    LOG.write(tmp_path / "log", 257)
    with pytest.raises(LogRejectedError, match="has 300 entries, the log has only 257"):
        check_log(tmp_path / "log", KEY, older=write_older(tmp_path, LOG, 300))


def change_entry(folder: Path) -> None:
    replace(folder / "tile/entries/001.p/44", b"entry 271", b"entry 999")


def swap_entries(folder: Path) -> None:
    replace(folder / "tile/entries/001.p/44", b"entry 270\0\x09entry 271", b"entry 271\0\x09entry 270")


def drop_entry(folder: Path) -> None:
    replace(folder / "tile/entries/001.p/44", b"\0\x09entry 299", b"")


def add_entry(folder: Path) -> None:
    replace(folder / "tile/entries/001.p/44", b"entry 299", b"entry 299\0\x09entry 300")


def cut_entry(folder: Path) -> None:
    replace(folder / "tile/entries/001.p/44", b"entry 299", b"entry")


def change_leaf_hash(folder: Path) -> None:
    file = folder / "tile/0/000"
    replace(file, file.read_bytes()[:32], bytes(32))


def cut_tile(folder: Path) -> None:
    file = folder / "tile/0/001.p/44"
    file.write_bytes(file.read_bytes()[:-1])


def change_upper_tile(folder: Path) -> None:
    (folder / "tile/1/000.p/1").write_bytes(bytes(32))


def remove_tile(folder: Path) -> None:
    (folder / "tile/0/000").unlink()


def remove_bundle(folder: Path) -> None:
    (folder / "tile/entries/000").unlink()


def replace_by_fork(folder: Path) -> None:
    signed = (folder / "checkpoint").read_bytes()
    FORK.write(folder, 300)
    (folder / "checkpoint").write_bytes(signed)


def sign(folder: Path, text: str) -> None:
    (folder / "checkpoint").write_text(f"{text}\n{signature_line(text)}", encoding="utf-8")


def checkpoint_text(folder: Path) -> str:
    return (folder / "checkpoint").read_text(encoding="utf-8").partition("\n\n")[0] + "\n"


def change_size(folder: Path) -> None:
    replace(folder / "checkpoint", b"\n300\n", b"\n299\n")


def sign_smaller_size(folder: Path) -> None:
    sign(folder, checkpoint_text(folder).replace("\n300\n", "\n299\n"))


def sign_zero_before_size(folder: Path) -> None:
    sign(folder, checkpoint_text(folder).replace("\n300\n", "\n0300\n"))


def sign_extension(folder: Path) -> None:
    sign(folder, f"{checkpoint_text(folder)}extension\n")


def sign_other_origin(folder: Path) -> None:
    sign(folder, checkpoint_text(folder).replace("acme", "rival"))


def sign_with_other_key(folder: Path) -> None:
    text = checkpoint_text(folder)
    (folder / "checkpoint").write_text(f"{text}\n{signature_line(text, seed=bytes(32))}", encoding="utf-8")


def remove_signature(folder: Path) -> None:
    (folder / "checkpoint").write_text(f"{checkpoint_text(folder)}\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (change_entry, "entry 271 does not have the hash in its tile"),
        (swap_entries, "entry 270 does not have the hash in its tile"),
        (drop_entry, "entry bundle ends within entry 299"),
        (add_entry, "entry bundle 1 has 11 bytes after its entries"),
        (cut_entry, "entry bundle ends within entry 299"),
        (change_leaf_hash, "downloaded inconsistent tile"),
        (cut_tile, "1407 bytes, want 1408"),
        (change_upper_tile, "downloaded inconsistent tile"),
        (remove_tile, "tile/0/000: no such file"),
        (remove_bundle, "tile/entries/000: no such file"),
        (replace_by_fork, "downloaded inconsistent tile"),
        (change_size, "invalid signature for key"),
        (sign_smaller_size, "tile/0/001.p/43: no such file"),
        (sign_zero_before_size, "malformed tree note"),
        (sign_extension, "checkpoint has 4 lines, want 3"),
        (sign_other_origin, "origin is .*rival.*, but the key is that of .*acme"),
        (sign_with_other_key, "note has no verifiable signatures"),
        (remove_signature, "malformed note"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_changed_log_is_rejected(tmp_path: Path, change: Callable[[Path], None], reason: str) -> None:
    change(LOG.write(tmp_path, 300))
    with pytest.raises(LogRejectedError, match=reason):
        check_log(tmp_path, KEY)


def test_every_changed_bit_is_noticed(tmp_path: Path) -> None:
    LOG.write(tmp_path, 300)
    # Base64 ignores the last bits of a signature, so only the text of the checkpoint is changed.
    chosen = random.Random(7)
    for file in [*sorted(path for path in tmp_path.rglob("*") if path.is_file())] * 12:
        content = bytearray(file.read_bytes())
        length = len(checkpoint_text(tmp_path)) if file.name == "checkpoint" else len(content)
        at = chosen.randrange(length)
        content[at] ^= 1 << chosen.randrange(8)
        original = file.read_bytes()
        file.write_bytes(content)
        with pytest.raises(LogRejectedError):
            check_log(tmp_path, KEY)
        file.write_bytes(original)
    assert check_log(tmp_path, KEY)["size"] == 300


def test_cosignature_of_a_witness_is_verified(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint"
    file.write_text(LOG.checkpoint(cosigned_at=1_795_860_000), encoding="utf-8")
    assert check_checkpoint(file, KEY)["cosignatures"] == []
    cosigned = {"witness": WITNESS, "time": 1_795_860_000}
    assert check_checkpoint(file, KEY, witnesses=[WITNESS_KEY])["cosignatures"] == [cosigned]
    other = verifier_key(WITNESS, bytes(32), 4)
    with pytest.raises(LogRejectedError, match=f"witness {re.escape(WITNESS)} has not cosigned"):
        check_checkpoint(file, KEY, witnesses=[other])


def test_cosignature_with_another_time_is_rejected(tmp_path: Path) -> None:
    text, _, lines = LOG.checkpoint(cosigned_at=1_795_860_000).rpartition(f"— {WITNESS} ")
    signed = bytearray(base64.b64decode(lines))
    signed[11] += 1
    file = tmp_path / "checkpoint"
    file.write_text(f"{text}— {WITNESS} {base64.b64encode(signed).decode()}\n", encoding="utf-8")
    with pytest.raises(LogRejectedError, match="invalid signature for key"):
        check_checkpoint(file, KEY, witnesses=[WITNESS_KEY])


@pytest.mark.parametrize(
    ("index", "size"), [(0, 1), (0, 2), (254, 255), (255, 256), (256, 257), (7, 300), (699, 700)]
)
def test_proof_is_accepted(tmp_path: Path, index: int, size: int) -> None:
    file = tmp_path / "one.tlog-proof"
    file.write_text(LOG.proof(index, size), encoding="utf-8")
    result = check_proof(file, KEY)
    assert (result["index"], result["size"]) == (index, size)
    assert base64.b64decode(result["leaf"]) == LOG.leaves[index]


def test_proof_is_bound_to_its_leaf(tmp_path: Path) -> None:
    file, leaf = tmp_path / "one.tlog-proof", tmp_path / "leaf"
    file.write_text(LOG.proof(7), encoding="utf-8")
    leaf.write_bytes(LOG.leaves[7])
    assert check_proof(file, KEY, leaf=leaf)["index"] == 7
    leaf.write_bytes(LOG.leaves[8])
    with pytest.raises(LogRejectedError, match="invalid transparency proof"):
        check_proof(file, KEY, leaf=leaf)


HASH = "A" * 43 + "="


@pytest.mark.parametrize(
    ("pattern", "replacement", "reason"),
    [
        ("@v1", "@v2", "unknown format"),
        ("\nextra .*\n", "\nextra AAAA\n", "invalid transparency proof"),
        ("\nextra .*\n", "\n", "invalid transparency proof"),
        ("\nextra .*\n", "\nextra ?\n", "extra data"),
        ("\nindex 7\n", "\nindex 8\n", "invalid transparency proof"),
        ("\nindex 7\n", "\nindex 300\n", "invalid inputs"),
        ("\nindex 7\n", "\nindex 07\n", "invalid index"),
        ("\nindex 7\n", "\n", "no index"),
        ("(\nindex 7\n).*\n", r"\1", "invalid transparency proof"),
        ("(\nindex 7\n)", rf"\1{HASH}\n", "invalid transparency proof"),
        ("(\nindex 7\n)(.*)\n", rf"\1{HASH}\n", "invalid transparency proof"),
        ("(\nindex 7\n)(.*)\n", r"\1short\n", "invalid hash"),
        ("\n300\n", "\n299\n", "invalid signature"),
        ("\n\n", "\n", "malformed note|unknown format|invalid hash"),
    ],
)
def test_changed_proof_is_rejected(tmp_path: Path, pattern: str, replacement: str, reason: str) -> None:
    changed = re.sub(pattern, replacement, LOG.proof(7, 300), count=1)
    assert changed != LOG.proof(7, 300)
    file = tmp_path / "one.tlog-proof"
    file.write_text(changed, encoding="utf-8")
    with pytest.raises(LogRejectedError, match=reason):
        check_proof(file, KEY)


@contextmanager
def serve(folder: Path, content_type: str = "application/octet-stream") -> Iterator[str]:
    """Serve a log over HTTP; entries need the header `Authorization: Bearer secret`, and nothing else may have it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            file = folder / self.path.removeprefix("/tlog/")
            allowed = self.headers.get("Authorization") == (
                "Bearer secret" if "/entries/" in self.path else None
            )
            content = file.read_bytes() if file.is_file() else b""
            self.send_response((200 if file.is_file() else 404) if allowed else 401)
            is_text = self.path.endswith("/checkpoint")
            self.send_header("Content-Type", "text/plain; charset=utf-8" if is_text else content_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/tlog"
        finally:
            server.shutdown()
            thread.join()


def test_log_is_read_over_http(tmp_path: Path) -> None:
    LOG.write(tmp_path)
    with serve(tmp_path) as url:
        assert check_log(url, KEY, header="Authorization: Bearer secret")["proofs"] == 700
        with pytest.raises(LogRejectedError, match="tile/entries/000: HTTP status 401"):
            check_log(url, KEY)
    with serve(tmp_path, "text/html") as url, pytest.raises(LogRejectedError, match="content type"):
        check_log(url, KEY, header="Authorization: Bearer secret")
