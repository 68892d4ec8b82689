"""Settings from files: `TOOLGATE_SECRETS_DIR`."""

import logging
import os
from pathlib import Path

import pytest

from toolgate_service.core.errors import StartError
from toolgate_service.core.settings import load_settings
from toolgate_service.core.settings_sources import RENAMED, STRICT, log_renamed_settings, variable_of

SECRET = "of a file, and long enough"


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that the gateway is told of, and nothing else set."""
    for name in [name for name in os.environ if name.startswith("TOOLGATE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TOOLGATE_SECRETS_DIR", str(tmp_path))
    return tmp_path


def test_a_file_stands_for_the_variable_of_its_name(folder: Path) -> None:
    """Secrets, lists and numbers come from files as they come from the environment; others' files are passed over."""
    (folder / "TOOLGATE_SECRET").write_text(f"{SECRET}\n")
    (folder / "TOOLGATE_DATABASE_URL").write_text("postgresql://toolgate@db/toolgate\n")
    (folder / "TOOLGATE_TRUSTED_PROXIES").write_text("10.0.0.0/8, 192.0.2.1")
    (folder / "TOOLGATE_MAX_CONNECTIONS").write_text("17")
    (folder / "tls.key").write_text("of another")
    settings = load_settings({})
    assert settings.secret_bytes() == SECRET.encode()
    assert settings.database_url == "postgresql://toolgate@db/toolgate"
    assert [str(network) for network in settings.trusted_proxies] == ["10.0.0.0/8", "192.0.2.1/32"]
    assert settings.max_connections == 17


def test_arguments_and_the_environment_go_before_a_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said closer to the process wins; an empty variable says nothing."""
    (folder / "TOOLGATE_DEFAULT_PLAN").write_text("pro")
    monkeypatch.setenv("TOOLGATE_DEFAULT_PLAN", "")
    assert load_settings({}).default_plan == "pro"
    monkeypatch.setenv("TOOLGATE_DEFAULT_PLAN", "business")
    assert load_settings({}).default_plan == "business"
    assert load_settings({"default_plan": "enterprise"}).default_plan == "enterprise"


def test_a_folder_that_is_not_there_ends_the_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount that failed must not start a gateway with a secret of its own."""
    monkeypatch.setenv("TOOLGATE_SECRETS_DIR", str(folder / "gone"))
    with pytest.raises(StartError, match=r"^TOOLGATE_SECRETS_DIR: cannot read '.*gone': .*; name a folder"):
        load_settings({})


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            "folder",
            "cannot read '.*TOOLGATE_SECRET': Is a directory; write a UTF-8 text file that the gateway is permitted to read",
        ),
        (
            "bytes",
            "cannot read '.*TOOLGATE_SECRET': its content is not UTF-8 text; write a UTF-8 text file that the gateway is permitted to read",
        ),
        (
            "empty",
            "the file '.*TOOLGATE_SECRET' is empty; write the value of the setting into it, or remove the file",
        ),
    ],
)
def test_a_file_that_says_nothing_ends_the_start(folder: Path, kind: str, said: str) -> None:
    """A secret that did not arrive is no secret that is not set; it is named with the cure, and not shown."""
    path = folder / "TOOLGATE_SECRET"
    if kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"\xff\xfe secret" if kind == "bytes" else b" \n")
    with pytest.raises(StartError, match=f"^TOOLGATE_SECRET: {said}$") as told:
        load_settings({})
    assert told.value.__cause__ is None


def test_a_wrong_value_of_a_file_is_named_as_its_setting(folder: Path) -> None:
    """The message names the setting, wherever its value came from, and never the value."""
    (folder / "TOOLGATE_SECRET").write_text("too short")
    with pytest.raises(
        StartError, match=r"^TOOLGATE_SECRET: is too short; use at least 16 random characters$"
    ):
        load_settings({})


#: a value that each renamed setting accepts, and the value of the setting with it
VALUES = {
    "approval_use_ttl_seconds": "61",
    "denial_cache_seconds": "62",
    "stripe_webhook_secret": "whsec_63",
    "maintenance_interval_seconds": "64",
}


@pytest.mark.parametrize("place", ["environment", "folder"])
@pytest.mark.parametrize(("former", "name"), RENAMED.items())
def test_a_former_name_is_accepted(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    former: str,
    name: str,
    place: str,
) -> None:
    """Its value applies, and one warning names both names; empty variables are ignored."""
    if place == "folder":
        (folder / variable_of(former)).write_text(f"{VALUES[name]}\n")
    else:
        monkeypatch.setenv(variable_of(former).lower(), VALUES[name])
        monkeypatch.setenv(variable_of(name), "")
    settings = load_settings({})
    value = getattr(settings, name)
    assert str(value.get_secret_value() if name == "stripe_webhook_secret" else value) == VALUES[name]
    with caplog.at_level(logging.WARNING, "toolgate.gateway"):
        log_renamed_settings(settings.secrets_dir)
    message = (
        f"{variable_of(former)} is deprecated and accepted until version 0.2; set {variable_of(name)} instead"
    )
    assert caplog.messages == [message]


@pytest.mark.parametrize("newer_in_folder", [True, False])
def test_a_present_name_wins(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, newer_in_folder: bool
) -> None:
    """Also if the former name is set closer to the process."""
    names = ["TOOLGATE_UPKEEP_SECONDS", "TOOLGATE_MAINTENANCE_INTERVAL_SECONDS"]
    values = dict(zip(names, ("60", "70"), strict=True))
    in_folder = names[newer_in_folder]
    (folder / in_folder).write_text(values.pop(in_folder))
    ((variable, value),) = values.items()
    monkeypatch.setenv(variable, value)
    assert load_settings({}).maintenance_interval_seconds == 70
    with caplog.at_level(logging.WARNING, "toolgate.gateway"):
        log_renamed_settings(folder)
    assert caplog.messages == [
        f"{names[0]} is deprecated and ignored, because {names[1]} is set; remove {names[0]}"
    ]


@pytest.mark.parametrize("name", sorted(STRICT))
def test_different_values_of_a_strict_setting_end_the_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Equal values are accepted; the message contains neither value."""
    [former] = [variable_of(former) for former, present in RENAMED.items() if present == name]
    (folder / variable_of(name)).write_text(VALUES[name])
    monkeypatch.setenv(former, VALUES[name])
    load_settings({})
    monkeypatch.setenv(former, f"{VALUES[name]}0")
    with pytest.raises(StartError) as told:
        load_settings({})
    assert str(told.value) == (
        f"{variable_of(name)}: differs from {former}, the former name of the same setting; remove {former}"
    )


def test_a_wrong_value_is_reported_by_the_name_that_is_set(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "TOOLGATE_UPKEEP_SECONDS").write_text("soon")
    with pytest.raises(StartError, match=r"^TOOLGATE_UPKEEP_SECONDS: .*valid integer"):
        load_settings({})
    monkeypatch.setenv("TOOLGATE_MAINTENANCE_INTERVAL_SECONDS", "later")
    with pytest.raises(StartError, match=r"^TOOLGATE_MAINTENANCE_INTERVAL_SECONDS: .*valid integer"):
        load_settings({})
