"""Settings: the environment's, the defaults, and the secret that makes itself (decisions §7, §9)."""

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import ValidationError
from support.readme import ROOT

from toolgate_service.core.errors import StartError, StorageError
from toolgate_service.core.plans import BUILT_IN
from toolgate_service.core.settings import Settings, default_database_url, load_settings
from toolgate_service.db.sqlite import sqlite_path


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home folder of the test's own, and no setting from outside."""
    for name in (
        "TOOLGATE_SECRET",
        "TOOLGATE_DATABASE_URL",
        "TOOLGATE_DEFAULT_PLAN",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_the_defaults_are_those_of_the_decisions(home: Path) -> None:
    """The enterprise plan, a day, an hour, five minutes, and a file in the user's data folder."""
    settings = Settings()
    assert settings.default_plan == "enterprise"
    assert settings.approval_ttl_seconds == 24 * 3600
    assert settings.approval_use_ttl_seconds == 3600
    assert settings.denial_cache_seconds == 300
    assert settings.database_url == default_database_url()
    assert settings.database_url.startswith(f"sqlite:///{home}")


def test_an_empty_variable_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """`TOOLGATE_DATABASE_URL=` means the default, as an unset variable does."""
    monkeypatch.setenv("TOOLGATE_DATABASE_URL", "")
    assert Settings().database_url == default_database_url()


def test_lists_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commas separate; an address is a network of one."""
    monkeypatch.setenv("TOOLGATE_TRUSTED_PROXIES", "10.0.0.0/8, ::1")
    monkeypatch.setenv("TOOLGATE_CORS_ORIGINS", "https://a.test,http://localhost:5173")
    monkeypatch.setenv("TOOLGATE_PUBLIC_URL", "https://toolgate.example.com/")
    settings = Settings()
    assert [str(network) for network in settings.trusted_proxies] == ["10.0.0.0/8", "::1/128"]
    assert settings.cors_origins == ("https://a.test", "http://localhost:5173")
    assert settings.public_url == "https://toolgate.example.com"


def test_a_home_of_any_name_holds_the_default_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder whose name means something in a URL is still the folder that is used."""
    monkeypatch.setenv("HOME", str(tmp_path / "100% mine?"))
    assert str(tmp_path / "100% mine?") in str(sqlite_path(default_database_url()))


def test_the_environment_goes_before_the_default_and_an_argument_before_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`TOOLGATE_*` sets, an argument overrides."""
    monkeypatch.setenv("TOOLGATE_DEFAULT_PLAN", "pro")
    assert Settings().default_plan == "pro"
    assert Settings(default_plan="business").default_plan == "business"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("DEFAULT_PLAN", "gold", "free, pro, business, enterprise"),
        ("SECRET", "short", "at least 16"),
        ("APPROVAL_TTL_SECONDS", "0", "greater than 0"),
        ("APPROVAL_USE_TTL_SECONDS", "soon", "valid integer"),
        ("APPROVAL_USE_TTL_SECONDS", "99999999999", "less than or equal"),
        ("LOGIN_THREADS", "-1", "greater than 0"),
        ("PUBLIC_URL", "toolgate.example.com", "not a web address"),
        ("PUBLIC_URL", "https://user:password@toolgate.example.com", "not a web address"),
        ("PUBLIC_URL", "https://toolgate.example.com/?a=b", "not a web address"),
        ("PUBLIC_URL", "http://[", "not a web address"),
        ("TRUSTED_PROXIES", "10.0.0.1/8", "'10.0.0.1/8' is not an IP address or network"),
        ("CORS_ORIGINS", "https://a.test/", "'https://a.test/' is not an origin"),
        ("CORS_ORIGINS", "*,https://a.test", "cannot be combined with other origins"),
        ("REQUEST_TIMEOUT_SECONDS", "0", "greater than 0"),
        ("MAX_CONNECTIONS", "0", "greater than 0"),
        ("REDIS_URL", "redis.example.com", "is not the URL of a Redis server; write for example redis://"),
        ("REDIS_URL", "http://redis.example.com", "is not the URL of a Redis server"),
        ("REDIS_URL", "redis://:geheim@/0", "is not the URL of a Redis server"),
        ("REDIS_URL", "redis://:geheim@host:port/0", "is not the URL of a Redis server"),
        ("REDIS_URL", "redis://:geheim@host/zero", "is not the URL of a Redis server"),
        ("REDIS_URL", "rediss://:geheim@host/0?ssl_certs=x", "is not the URL of a Redis server"),
        ("WORKERS", "0", "greater than 0"),
    ],
)
def test_a_wrong_setting_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    """The message names the cure and does not repeat a secret."""
    monkeypatch.setenv(f"TOOLGATE_{name}", value)
    with pytest.raises(ValidationError, match=says) as refusal:
        Settings()
    assert name != "SECRET" or "'short'" not in str(refusal.value)
    assert "geheim" not in str(refusal.value)


def test_redis_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library the message says what to install, and no password."""
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    monkeypatch.setenv("TOOLGATE_REDIS_URL", "redis://:geheim@localhost")
    with pytest.raises(StartError, match=r"TOOLGATE_REDIS_URL: needs the extra 'redis'") as refusal:
        load_settings({})
    assert "geheim" not in str(refusal.value)


def test_a_redis_url_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever prints the settings prints no password."""
    monkeypatch.setenv(
        "TOOLGATE_REDIS_URL", "rediss://gate:geheim@redis.example.com:6380/3?ssl_ca_certs=/ca.pem"
    )
    assert "geheim" not in repr(Settings())


def test_the_secret_makes_itself_once_beside_nobodys_data(home: Path) -> None:
    """One secret of 0600 in a configuration folder of 0700, apart from the database."""
    secret = Settings().secret_bytes()
    assert len(secret) >= 48
    assert Settings().secret_bytes() == secret
    [file] = [path for path in home.rglob("secret*") if path.is_file()]
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert str(file.parent) not in default_database_url()


def test_on_a_server_no_secret_makes_itself(home: Path) -> None:
    """Gateways that share a PostgreSQL server must share a secret: without one, none starts (decisions §9)."""
    settings = Settings(database_url="postgresql://toolgate@localhost/toolgate")
    with pytest.raises(
        StorageError, match="TOOLGATE_SECRET is not set; a gateway with PostgreSQL needs a secret"
    ):
        settings.secret_bytes()
    assert list(home.iterdir()) == []


def test_two_first_starts_agree_on_one_secret() -> None:
    """However many start at once, there is one secret."""
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: Settings().secret_bytes(), range(8)))) == 1


def test_a_secret_that_was_emptied_is_refused(home: Path) -> None:
    """A gateway does not go on with a guessable secret."""
    Settings().secret_bytes()
    [file] = [path for path in home.rglob("secret*") if path.is_file()]
    file.write_text("")
    with pytest.raises(StorageError, match="fewer than 16 characters"):
        Settings().secret_bytes()


def test_a_configuration_folder_that_cannot_be_made_is_told(home: Path) -> None:
    """The message names the place and the way around."""
    (home / ".config").write_text("a file where the folder should be")
    with pytest.raises(StorageError, match="TOOLGATE_SECRET"):
        Settings().secret_bytes()


def test_the_plans_are_those_of_the_specification() -> None:
    """Every number of spec §8, and those that decisions §7 adds."""
    table = {
        plan.name: (
            plan.requests_per_minute,
            plan.max_logs_per_month,
            plan.log_retention_days,
            plan.max_agents,
            plan.max_team_members,
            plan.price,
        )
        for plan in BUILT_IN.values()
    }
    assert table == {
        "free": (100, 1_000, 7, 2, 1, 0),
        "pro": (1_000, 50_000, 30, 10, 5, 29),
        "business": (10_000, 500_000, 90, 50, 25, 199),
        "enterprise": (1_000_000, -1, -1, -1, -1, 0),
    }


def test_documentation_names_only_settings_that_exist() -> None:
    """The reference page is generated; other pages about the gateway name settings that exist."""
    known = {f"TOOLGATE_{name.upper()}" for name in Settings.model_fields}
    named = {
        name
        for page in (ROOT / "docs" / "operate").glob("*.md")
        for name in re.findall(r"\bTOOLGATE_[A-Z_]*[A-Z]\b", page.read_text())
    }
    assert len(named) > 30
    # An option of `toolgate db copy`, a misspelt name that `toolgate config check` reports, and a setting of the SDK.
    assert named - known == {"TOOLGATE_COPY_TO", "TOOLGATE_REGISTRATON", "TOOLGATE_HTTP"}
