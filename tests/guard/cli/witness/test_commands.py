"""`toolgate witness keygen` and `serve`."""

import base64
import signal
from pathlib import Path
from typing import Any

import pytest
from support.transparency_logs import SignedLog, verifier_key
from support.witness_server import ServedWitness
from typer.testing import CliRunner

from toolgate_cli.app import app
from toolgate_cli.log.verification.notes import WITNESS, Key
from toolgate_cli.witness.keys import read_key

WITNESS_VKEY = verifier_key("example.com/witness", 4, bytes([1] * 32))

pytestmark = pytest.mark.usefixtures("home")


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["witness", *words])


def test_keygen_writes_a_private_file_and_prints_the_verifier_key(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "key"
    done = run("keygen", "--name", "example.com/witness", "--key", str(path))
    assert done.exit_code == 0
    key = Key.parse(done.stdout.strip())
    assert (key.name, key.type, key.vkey) == ("example.com/witness", WITNESS, read_key(path).vkey)
    assert path.stat().st_mode & 0o777 == 0o600
    private, word, name, _, data = path.read_text().strip().split("+", 4)
    assert (private, word, name, base64.b64decode(data)[0]) == ("PRIVATE", "KEY", "example.com/witness", 4)
    assert data not in done.output


def test_keygen_does_not_change_the_mode_of_an_existing_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert run("keygen", "--name", "w", "--key", str(tmp_path / "key")).exit_code == 0
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_default_files_are_in_the_state_folder(home: Path) -> None:
    assert run("keygen", "--name", "w").exit_code == 0
    assert (home / "state" / "toolgate" / "witness.key").exists()


def test_keygen_never_overwrites_a_key(tmp_path: Path) -> None:
    path = tmp_path / "key"
    run("keygen", "--name", "w", "--key", str(path))
    before = path.read_bytes()
    done = run("keygen", "--name", "w", "--key", str(path))
    assert (done.exit_code, path.read_bytes()) == (1, before)
    assert "a key is never overwritten" in done.stderr


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\nb", "a\u00a0b", "é" * 128])
def test_invalid_name_is_rejected(tmp_path: Path, name: str) -> None:
    done = run("keygen", "--name", name, "--key", str(tmp_path / "key"))
    assert (done.exit_code, (tmp_path / "key").exists()) == (1, False)
    assert "invalid name of a witness" in done.stderr


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        (None, 0o600, "does not exist; create a key with toolgate witness keygen"),
        ("PRIVATE+KEY+w+00000000+BAAA", 0o600, "does not contain the key of a witness"),
        ("geheim", 0o600, "does not contain the key of a witness"),
        ("geheim", 0o644, "key"),
    ],
)
def test_unusable_key_file_is_rejected(tmp_path: Path, content: str | None, mode: int, message: str) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    done = run("serve", "--key", str(path), "--state", str(tmp_path / "s"), "--log", SignedLog(1).vkey)
    assert (done.exit_code, message in done.stderr, "geheim" in done.stderr) == (1, True, False)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the witness has no logs"),
        (["--log", "vkey"], "invalid key 'vkey'"),
        (["--log", WITNESS_VKEY], "is the key of a witness; use the verifier key of a log"),
        (["--logs", "missing"], "cannot read 'missing'"),
        (["--logs", "invalid.txt"], "'invalid.txt', line 2: invalid key 'vkey'"),
        (["--logs", "empty.txt"], "the witness has no logs"),
    ],
)
def test_invalid_logs_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("invalid.txt").write_text("# a comment\nvkey\n")
    Path("empty.txt").write_text("\n# a comment\n")
    done = run("serve", *words)
    assert (done.exit_code, message in done.stderr) == (1, True), done.stderr


def test_port_in_use_is_reported(tmp_path: Path) -> None:
    log = SignedLog(3)
    with ServedWitness(tmp_path, log) as witness:
        port = witness.url.rpartition(":")[2]
        words = ["--key", str(tmp_path / "witness.key"), "--state", str(tmp_path / "other"), "--port", port]
        done = run("serve", "--log", log.vkey, *words)
    assert done.exit_code == 1
    assert f"cannot listen on '127.0.0.1', port {port}" in done.stderr


def test_logs_of_a_file_are_cosigned(tmp_path: Path) -> None:
    first, second = SignedLog(3), SignedLog(3, origin="example.com/second")
    file = tmp_path / "logs.txt"
    file.write_text(f"# the second log\n{second.vkey}\n\n")
    with ServedWitness(tmp_path, first, options=("--logs", str(file))) as witness:
        assert f"cosigning the checkpoints of 2 logs as {witness.key}" in witness.output
        assert [witness.submit(log.request(0, 3)).status_code for log in (first, second)] == [200, 200]
        assert witness.stop() == ""


def test_ctrl_c_ends_with_its_status(tmp_path: Path) -> None:
    with ServedWitness(tmp_path, SignedLog(3)) as witness:
        witness.process.send_signal(signal.SIGINT)
        assert witness.process.wait(30) == 130


def test_new_state_is_reported_once(tmp_path: Path) -> None:
    for is_new in (True, False):
        with ServedWitness(tmp_path, SignedLog(3)) as witness:
            assert ("if this key has cosigned checkpoints before" in witness.output) is is_new
            witness.stop()
