"""The first start with nothing set: where things are kept, who may read them, and what is said."""

import json
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr
from support.crowd import together
from support.serving import Serving

from toolgate_service.core import crypto as secret_file
from toolgate_service.core import settings
from toolgate_service.core.plans import BUILT_IN, describe_limits
from toolgate_service.server.run import startup_summary

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
from toolgate_service.core.settings import Settings

print("ready", flush=True)
for folder in sys.stdin:
    os.environ["XDG_CONFIG_HOME"] = folder.strip()
    print(Settings().secret_bytes().decode(), flush=True)
"""


@pytest.mark.parametrize("rounds", [30, pytest.param(2000, marks=pytest.mark.slow)])
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


def test_the_startup_summary_names_console_database_secret_and_plan(tmp_path: Path) -> None:
    """With default settings, everything a new user looks for next; and the files it names exist."""
    home = tmp_path / "home"
    home.mkdir()
    with Serving(home) as gateway:
        gateway.listening()
        assert gateway.url.startswith("http://127.0.0.1:")
        rows = rows_of(gateway.summary)
        assert rows["console"] == f"{gateway.url}/console"
        assert rows["database"] == str(home / ".local" / "share" / "toolgate" / "toolgate.db")
        assert rows["secret"] == str(home / ".config" / "toolgate" / "secret")
        assert Path(rows["database"]).exists()
        assert Path(rows["secret"]).exists()
        assert rows["plan"].startswith("enterprise")
        assert "Warning" not in gateway.summary


def test_a_new_organization_has_no_limits_by_default(tmp_path: Path) -> None:
    """With default settings new organizations get the enterprise plan; with `--plan free` the free plan."""
    home = tmp_path / "home"
    home.mkdir()
    for arguments, plan in (((), "enterprise"), (("--plan", "free"), "free")):
        extra = {"XDG_DATA_HOME": str(tmp_path / plan)}
        with Serving(home, *arguments, extra=extra) as gateway:
            token = gateway.listening().register()
            bearer = {"Authorization": f"Bearer {token}"}
            organization = httpx.get(f"{gateway.url}/api/organization", headers=bearer, timeout=30).json()
            assert organization["plan"] == plan
            assert rows_of(gateway.summary)["plan"].startswith(plan)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_limits_of_the_free_plan_are_logged_once(tmp_path: Path, workers: int) -> None:
    """From the plan table with the operator's changes, in the configured log format."""
    home = tmp_path / "home"
    home.mkdir()
    plans = home / "plans.toml"
    plans.write_text("[free]\nmax_agents = 4321\nfeatures = ['webhooks']\n")
    extra = {
        "TOOLGATE_LOG_FORMAT": "json",
        "TOOLGATE_PLANS_FILE": str(plans),
        "TOOLGATE_WORKERS": str(workers),
        "TOOLGATE_UPKEEP_SECONDS": "60",
    }
    with Serving(home, "--plan", "free", extra=extra) as gateway:
        gateway.listening()
        renamed, limits = map(json.loads, gateway.complaint.splitlines())
        assert renamed["level"] == "WARNING"
        assert "set TOOLGATE_MAINTENANCE_INTERVAL_SECONDS instead" in renamed["message"]
        free = replace(BUILT_IN["free"], max_agents=4321, features=("webhooks",))
        assert limits["message"].startswith(f"New organizations get the free plan ({describe_limits(free)}).")
        assert "agents: 4,321, " in limits["message"]
        assert "no webhooks" not in limits["message"]
        assert "TOOLGATE_DEFAULT_PLAN=enterprise" in limits["message"]
        assert "TOOLGATE_PLANS_FILE" in limits["message"]


def test_limits_are_described_from_the_plan_table() -> None:
    """Every limit and every feature that is missing; of a plan without limits only its rate remains."""
    assert describe_limits(BUILT_IN["free"]) == (
        "agents: 2, team members: 1, requests per minute: 100, log entries per month: 1,000, days of log retention: 7, "
        "no webhooks, no approval workflows, no advanced permissions, no priority support"
    )
    assert describe_limits(BUILT_IN["enterprise"]) == "requests per minute: 1,000,000"


def test_the_startup_summary_warns_of_open_registration(tmp_path: Path) -> None:
    """On an address that others reach; the console is named by an address that a browser here can open."""
    home = tmp_path / "home"
    home.mkdir()
    with Serving(home, "--host", "0.0.0.0", extra={"TOOLGATE_DEFAULT_PLAN": "free"}) as gateway:
        gateway.listening()
        rows = rows_of(gateway.summary)
        assert rows["plan"].startswith("free")
        assert rows["console"].startswith("http://localhost:")
        assert httpx.get(rows["console"], timeout=30).status_code == 303
        assert "anyone who can reach this address can register" in gateway.summary


def test_the_startup_summary_shows_no_secret(tmp_path: Path) -> None:
    """A public address is shown instead of the socket's; a secret that was set is named by its variable."""
    home = tmp_path / "home"
    home.mkdir()
    extra = {
        "TOOLGATE_SECRET": "geheim-geheim-geheim",
        "TOOLGATE_PUBLIC_URL": "https://gate.example.com/",
        "TOOLGATE_CONSOLE": "true",
    }
    with Serving(home, extra=extra) as gateway:
        gateway.listening()
        rows = rows_of(gateway.summary)
        assert rows["secret"] == "TOOLGATE_SECRET"
        assert rows["console"] == "https://gate.example.com/console"
        assert "geheim" not in gateway.summary
    with Serving(home, extra=extra | {"TOOLGATE_CONSOLE": "false"}) as gateway:
        assert rows_of(gateway.listening().summary)["console"] == "off (TOOLGATE_CONSOLE=false)"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://who:geheim@db.example.com:6432/gate", "postgresql://who:…@db.example.com:6432/gate"),
        ("postgresql://who@/gate?host=/run&password=geheim", "postgresql://who@/gate?host=…&password=…"),
        ("postgresql://who:ge/heim@db/gate", "postgresql://who:…@db/gate"),
    ],
)
def test_the_startup_summary_masks_the_databases_password(url: str, shown: str) -> None:
    """Host and database are shown, credentials are not."""
    given = settings.Settings(database_url=url, secret=SecretStr("x" * 32), stripe_webhook_secret=None)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        summary = startup_summary(listening, given)
    assert rows_of(summary)["database"] == shown
    assert "geheim" not in summary
    assert "heim" not in summary


def test_the_startup_summary_warns_of_a_shop_that_gives_everything_away() -> None:
    """With a payment provider, unlimited new organizations are probably a mistake."""
    given = settings.Settings(secret=SecretStr("x" * 32), stripe_webhook_secret=SecretStr("whsec_x"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert "TOOLGATE_DEFAULT_PLAN=free" in startup_summary(listening, given)
        given.default_plan = "free"
        assert "Warning" not in startup_summary(listening, given)


def rows_of(summary: str) -> dict[str, str]:
    """Return the rows of a start-up summary by their names."""
    return dict(re.findall(r"^  (\w+) +(.+)$", summary, re.MULTILINE))


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
