"""The first start with nothing set: where things are kept, who may read them, and what is said."""

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.crowd import together
from support.serving import Serving

from toolgate_service import secret_file, settings

pytestmark = pytest.mark.sqlite_only("where nothing is set, the gateway makes an SQLite file")

SECONDS = 10


def _mode(path: Path) -> str:
    return oct(path.stat().st_mode & 0o7777)


@pytest.mark.parametrize("moved", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_first_starts_agree_and_keep_things_private(moved: bool, tmp_path: Path) -> None:
    """Started twice at once in a new home, both use one private database and one secret, kept apart from it."""
    home = tmp_path / "home"
    home.mkdir()
    data = (tmp_path / "data" if moved else home / ".local" / "share") / "toolgate"
    config = (tmp_path / "config" if moved else home / ".config") / "toolgate"
    extra = {"XDG_DATA_HOME": str(data.parent), "XDG_CONFIG_HOME": str(config.parent)} if moved else {}
    with ExitStack() as stack:
        first, second = [stack.enter_context(Serving(home, extra=extra, umask=0)) for _ in range(2)]
        together(first.listening, second.listening)
        token = first.register()
        assert second.knows(token)
        assert sorted(path.name for path in data.iterdir()) == [
            "toolgate.db",
            "toolgate.db-shm",
            "toolgate.db-wal",
        ]
        assert {_mode(path) for path in data.iterdir()} == {"0o600"}
        assert [path.name for path in config.iterdir()] == ["secret"]
        assert _mode(config / "secret") == "0o600"
        assert {_mode(data), _mode(config)} == {"0o700"}
        secret = (config / "secret").read_bytes()
        assert len(secret) >= 32
        for gateway in (first, second):
            assert gateway.ended_by(signal.SIGTERM, SECONDS) == 0
            assert gateway.complaint == ""
    with Serving(home, extra=extra) as again:
        again.listening()
        assert again.knows(token)
    assert (config / "secret").read_bytes() == secret


#: asks for the secret of one configuration folder after the other
SECRETS = """
import os, sys
from toolgate_service.settings import Settings

print("ready", flush=True)
for folder in sys.stdin:
    os.environ["XDG_CONFIG_HOME"] = folder.strip()
    print(Settings().secret_bytes().decode(), flush=True)
"""


@pytest.mark.parametrize("rounds", [100, pytest.param(2000, marks=pytest.mark.slow)])
def test_the_secret_is_made_once(rounds: int, tmp_path: Path) -> None:
    """Three processes that ask for a secret nobody has made yet get the same one, round after round."""
    with ExitStack() as stack:
        racers = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", SECRETS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            for _ in range(3)
        ]
        assert [_line(racer) for racer in racers] == ["ready"] * 3
        secrets = set()
        for number in range(rounds):
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write(f"{tmp_path}/{number}\n")
                racer.stdin.flush()
            told = {_line(racer) for racer in racers}
            assert len(told) == 1
            secrets |= told
    assert len(secrets) == rounds
    assert len(list(tmp_path.glob("*/toolgate/*"))) == rounds


def _line(racer: subprocess.Popen[str]) -> str:
    assert racer.stdout is not None
    return racer.stdout.readline().strip()


def test_the_start_up_line_says_what_a_newcomer_must_know(tmp_path: Path) -> None:
    """By default it names the address, the free plan, and how to lift its limits."""
    home = tmp_path / "home"
    home.mkdir()
    with Serving(home) as gateway:
        gateway.listening()
        assert gateway.url.startswith("http://127.0.0.1:")
        assert "the free plan" in gateway.line
        assert "--plan enterprise" in gateway.line
        assert "register" not in gateway.line


def test_the_start_up_line_warns_of_strangers(tmp_path: Path) -> None:
    """Where others reach it, it says that anybody may register; the plan is the one that was chosen."""
    home = tmp_path / "home"
    home.mkdir()
    with Serving(home, "--host", "0.0.0.0", extra={"TOOLGATE_DEFAULT_PLAN": "enterprise"}) as gateway:
        gateway.listening()
        assert "the enterprise plan" in gateway.line
        assert "--plan" not in gateway.line
        assert "anybody who reaches this address may register" in gateway.line


def test_the_secret_is_apart_where_the_system_has_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where configuration and data share a folder, as on macOS, the secret is kept in another all the same."""
    monkeypatch.setattr(secret_file, "user_config_path", lambda *_, **__: tmp_path / "support")
    monkeypatch.setattr(secret_file, "user_data_path", lambda *_, **__: tmp_path / "support")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TOOLGATE_SECRET", raising=False)
    secret = settings.Settings().secret_bytes()
    assert (tmp_path / ".config" / "toolgate" / "secret").read_bytes() == secret
    assert not (tmp_path / "support").exists()
