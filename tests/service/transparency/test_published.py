"""Where a gateway remembers the checkpoints that it has published."""

from pathlib import Path

import pytest
from support.transparency_logs import verifier_key

from toolgate_service.core.crypto import Vault
from toolgate_service.core.settings import load_settings
from toolgate_service.db.database import open_database
from toolgate_service.transparency.sealer import Sealer

WITNESS = f"https://one.test {verifier_key('example.com/w1', 4, bytes([1] * 32))}"


@pytest.mark.parametrize(
    ("variable", "value", "warns"),
    [
        ("TOOLGATE_CHECKPOINT_FILE", "", True),
        ("TOOLGATE_CHECKPOINT_FILE", "checkpoints", False),
        ("TOOLGATE_WITNESSES", WITNESS, False),
    ],
)
def test_gateway_that_cannot_recognize_a_restore_logs_a_warning(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str,
    value: str,
    warns: bool,
) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET", "long enough for the vault of a gateway")
    if value:
        monkeypatch.setenv(variable, str(tmp_path / value) if value == "checkpoints" else value)
    settings = load_settings({})
    Sealer.of(open_database("postgresql://gate@127.0.0.1:1/gate"), settings, Vault.of(settings), None)
    assert ("TOOLGATE_CHECKPOINT_FILE is not set" in caplog.text) is warns


def test_default_file_beside_an_sqlite_database_needs_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET", "long enough for the vault of a gateway")
    settings, database = load_settings({}), open_database(f"sqlite:///{tmp_path / 'gateway.db'}")
    Sealer.of(database, settings, Vault.of(settings), tmp_path / "gateway.db-checkpoints")
    assert caplog.text == ""
