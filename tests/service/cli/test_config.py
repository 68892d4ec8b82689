"""`toolgate config`: what is set, where it comes from and whether it holds; no secret is shown, nothing is made."""

import json
import os
import re
import socketserver
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.certificates import certificate_for
from support.databases import database_url, without_warnings
from support.forking import FORK_SERVER
from support.gateway import SECRET
from support.mailbox import Mailbox
from support.readme import ROOT
from support.serving import Serving, environment
from support.valkey import Valkey

from toolgate_cli.gateway import CLIENT_VARIABLES
from toolgate_service.cli.admin import prune_now
from toolgate_service.cli.config import Finding, check, hide_secrets, is_secret
from toolgate_service.cli.database import current
from toolgate_service.core.settings import Settings
from toolgate_service.core.settings_sources import variable_of
from toolgate_service.core.text_safety import masked_url
from toolgate_service.server.run import StartError, serve

HIDE = "hunter2hunter2hunter2"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home."""
    home = tmp_path / "home"
    home.mkdir()
    return home


def _run(
    home: Path, *arguments: str, extra: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return FORK_SERVER.run("config", *arguments, env=environment(home, extra))


def _checked(home: Path, code: int, extra: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """Return the findings by what was looked at: of several the last one."""
    ended = _run(home, "check", "--json", extra=extra)
    assert (ended.returncode, without_warnings(ended.stderr)) == (code, ""), ended
    return {finding["check"]: finding for finding in json.loads(ended.stdout)["findings"]}


def _everything(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def test_a_first_start_is_looked_at_and_nothing_is_made(home: Path) -> None:
    """In an empty home all is well, and neither secret, folder nor database is there afterwards."""
    findings = _checked(home, 0)
    assert {name: finding["state"] for name, finding in findings.items()} == dict.fromkeys(
        ("settings", "secret", "database"), "ok"
    )
    assert "the gateway creates it when it starts" in findings["database"]["says"]
    assert _everything(home) == {}


def test_every_setting_says_where_it_comes_from(home: Path) -> None:
    """Option before environment before default; an empty variable is none, and case does not count."""
    extra = {"TOOLGATE_WORKERS": "3", "toolgate_maintenance_interval_seconds": "60", "TOOLGATE_REGISTRATION": "", "TOOLGATE_DEFAULT_PLAN": "free"}  # fmt: skip
    ended = _run(home, "show", "--json", "--plan", "pro", extra=extra)
    assert ended.returncode == 0, ended
    shown = json.loads(ended.stdout)
    assert list(shown) == [variable_of(name) for name in Settings.model_fields]
    assert shown["TOOLGATE_DEFAULT_PLAN"] == {"value": "pro", "source": "option"}
    assert shown["TOOLGATE_WORKERS"] == {"value": "3", "source": "environment"}
    assert shown["TOOLGATE_MAINTENANCE_INTERVAL_SECONDS"] == {"value": "60", "source": "environment"}
    assert shown["TOOLGATE_REGISTRATION"] == {"value": "open", "source": "default"}
    assert shown["TOOLGATE_SECRET"] == {"value": None, "source": "default"}


def test_a_setting_in_a_file_is_named_as_such(home: Path) -> None:
    """What TOOLGATE_SECRETS_DIR hands out comes from a file, and is as secret there."""
    (home / "TOOLGATE_SECRET").write_text(HIDE)
    (home / "TOOLGATE_PUBLIC_URL").write_text(f"https://me:{HIDE}@gate.example.test")
    ended = _run(home, "show", "--json", extra={"TOOLGATE_SECRETS_DIR": str(home)})
    shown = json.loads(ended.stdout)
    assert shown["TOOLGATE_SECRET"] == {"value": "…", "source": "file"}
    assert shown["TOOLGATE_PUBLIC_URL"]["source"] == "file"
    assert HIDE not in ended.stdout
    nowhere = _run(home, "show", extra={"TOOLGATE_SECRETS_DIR": str(home / "nowhere")})
    assert (nowhere.returncode, nowhere.stdout) == (1, "")
    assert "TOOLGATE_SECRETS_DIR" in nowhere.stderr


SECRETS = {
    variable_of(name): HIDE for name in Settings.model_fields if is_secret(name) and not name.endswith("_url")
}
URLS = {
    "TOOLGATE_DATABASE_URL": f"postgresql://me:{HIDE}@127.0.0.1:1/x?sslmode=disable&password={HIDE}",
    "TOOLGATE_SMTP_URL": f"smtp://me:{HIDE}%3F@127.0.0.1:1",
    "TOOLGATE_MAIL_FROM": "Gate <gate@example.test>",
    "TOOLGATE_PUBLIC_URL": "https://gate.example.test",
}
BROKEN = dict.fromkeys(URLS, f"{HIDE}://?#{HIDE}") | {
    "TOOLGATE_PUBLIC_URL": f"https://me:{HIDE}/{HIDE}@gate.example.test",
    "TOOLGATE_CORS_ORIGINS": f"https://me:{HIDE}@a.test",
}


@pytest.mark.parametrize("extra", [SECRETS | URLS, SECRETS | BROKEN, BROKEN], ids=["valid", "broken", "urls"])
@pytest.mark.parametrize("arguments", [("show",), ("check",), ("check", "--json")], ids=" ".join)
def test_no_secret_is_shown(home: Path, arguments: tuple[str, ...], extra: dict[str, str]) -> None:
    """Neither a secret nor a password inside a URL stands in what is printed, whether the settings are valid or not."""
    ended = _run(home, *arguments, extra=extra)
    assert ended.returncode == (0 if arguments == ("show",) else 1)
    assert "TOOLGATE_DATABASE_URL" in ended.stdout
    assert HIDE not in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pass@host:1/db", "postgresql://me:…@host:1/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://host/db?user=me&password=x&sslmode=require", "postgresql://host/db?user=…&password=…&sslmode=require"),
        ("redis://:p/a?s#s@w@host:6379/0", "redis://:…@host:6379/0"),
        ("redis://host?oops", "redis://host?…"),
        ("postgresql://host/db?password=pa@ss", "postgresql://…"),
        ("postgresql://me:x@host/db?password=pa&ss", "postgresql://me:…@host/db?password=…&…"),
        ("sqlite:////home/me@work/gateway.db", "sqlite:////home/me@work/gateway.db"),
        ("pass", "…"),
    ],
)  # fmt: skip
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    """User, host and what is harmless are shown; a password is not, also one that should have been escaped."""
    assert masked_url(url) == shown


def test_what_sounds_like_a_secret_is_one() -> None:
    """A setting whose name says that nobody may see it is of the type that nobody sees."""
    sounding = re.compile("secret|password|token")
    open_ones = {"secret_previous_leaked", "secrets_dir"}
    assert {name for name in Settings.model_fields if sounding.search(name)} - open_ones == {
        name for name in Settings.model_fields if is_secret(name) and not name.endswith("_url")
    }


def test_a_misspelt_setting_is_named_with_what_was_meant(home: Path) -> None:
    """A slip is wrong, since the setting does not act; what resembles nothing is a warning, others' variables nothing."""
    extra = {"TOOLGATE_REGISTRATON": "closed"}
    finding = _checked(home, 1, extra)["variables"]
    assert "'TOOLGATE_REGISTRATON'" in finding["says"]
    assert "'TOOLGATE_REGISTRATION'" in finding["cure"]
    assert _checked(home, 0, {"TOOLGATE_QWERTZ": "1"})["variables"]["state"] == "warning"
    harmless = {
        "TOOLGATE_URL": "http://x",
        "TOOLGATE_PORT": "tcp://10.0.0.1:80",
        "TOOLGATE_SERVICE_HOST": "10.0.0.1",
    }
    assert "variables" not in _checked(home, 0, harmless)


def test_a_misspelt_file_is_named_with_what_was_meant(home: Path, tmp_path: Path) -> None:
    """A file of TOOLGATE_SECRETS_DIR that no setting is called is told, in lower case too; others' files are not."""
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "tls.key").write_text("of another")
    for name, meant in (("TOOLGATE_SECRT", "TOOLGATE_SECRET"), ("toolgate_smtp_url", "TOOLGATE_SMTP_URL")):
        (folder / name).write_text(HIDE)
        finding = _checked(home, 1, {"TOOLGATE_SECRETS_DIR": str(folder)})["variables"]
        assert finding["says"] == f"the file {name!r} is not a setting of the gateway"
        assert finding["cure"] == f"did you mean {meant!r}?"
        (folder / name).unlink()


def test_a_former_name_is_shown_by_its_present_name(home: Path) -> None:
    """Its value is listed, and the check reports the former name with the present one."""
    extra = {"TOOLGATE_UPKEEP_SECONDS": "60", "TOOLGATE_PROVIDER_WEBHOOK_SECRET": HIDE}
    ended = _run(home, "check", "--json", extra=extra)
    assert ended.returncode == 0, ended
    assert HIDE not in ended.stdout
    told = json.loads(ended.stdout)
    assert told["settings"]["TOOLGATE_MAINTENANCE_INTERVAL_SECONDS"] == {
        "value": "60",
        "source": "environment",
    }
    assert told["settings"]["TOOLGATE_STRIPE_WEBHOOK_SECRET"] == {"value": "…", "source": "environment"}
    renamed = [finding for finding in told["findings"] if finding["check"] == "variables"]
    assert [(one["state"], one["says"], one["cure"]) for one in renamed] == [
        (
            "warning",
            "TOOLGATE_PROVIDER_WEBHOOK_SECRET is deprecated and accepted until version 0.2",
            "set TOOLGATE_STRIPE_WEBHOOK_SECRET instead",
        ),
        (
            "warning",
            "TOOLGATE_UPKEEP_SECONDS is deprecated and accepted until version 0.2",
            "set TOOLGATE_MAINTENANCE_INTERVAL_SECONDS instead",
        ),
    ]


def test_the_variables_of_agents_are_known() -> None:
    """Whatever the SDK, the plugins and the command line read is no misspelt setting of the gateway."""
    name = re.compile(r"\bTOOLGATE_[A-Z_]*[A-Z]\b")
    folders = (ROOT / "guard", ROOT / "integrations" / "toolgate_integrations")
    read = {
        found
        for folder in folders
        for path in folder.rglob("*.py")
        for found in name.findall(path.read_text())
    }
    assert read - {variable_of(setting) for setting in Settings.model_fields} == CLIENT_VARIABLES


def test_a_database_is_looked_at_without_a_trace(home: Path) -> None:
    """The schema that a gateway left is up to date, the secret opens its keys, and not a byte has changed."""
    extra = {"TOOLGATE_DATABASE_URL": database_url(home), "TOOLGATE_SECRET": SECRET}
    with Serving(home, extra=extra) as gateway:
        gateway.listening().register()
        running = _checked(home, 0, extra)
        assert gateway.ended_by(15, 30) == 0
    before = _everything(home)
    findings = _checked(home, 0, extra)
    assert findings == running
    assert "up to date" in findings["database"]["says"]
    assert _everything(home) == before
    other = extra | {"TOOLGATE_SECRET": "another secret, long enough"}
    assert "encrypted with another secret" in _checked(home, 1, other)["secret"]["says"]
    assert _everything(home) == before


def test_databases_that_cannot_be_used(home: Path) -> None:
    """A server that is away, a newer version's file, and one that is no database are wrong, each in its own words."""
    away = {"TOOLGATE_DATABASE_URL": "postgresql://me@127.0.0.1:1/x", "TOOLGATE_SECRET": SECRET}
    assert "PostgreSQL" in _checked(home, 1, away)["database"]["says"]
    assert (
        "not set"
        in _checked(home, 1, {"TOOLGATE_DATABASE_URL": away["TOOLGATE_DATABASE_URL"]})["secret"]["says"]
    )
    newer = sqlite3.connect(home / "newer.db")
    newer.executescript(
        "CREATE TABLE alembic_version (version_num TEXT); INSERT INTO alembic_version VALUES ('9999')"
    )
    newer.close()
    (home / "notes").write_text("these are my notes, and no database\n" * 200)
    for file, word in (("newer.db", "9999"), ("notes", "not a database")):
        before = _everything(home)
        assert (
            word
            in _checked(home, 1, {"TOOLGATE_DATABASE_URL": f"sqlite:///{home}/{file}"})["database"]["says"]
        )
        assert _everything(home) == before


UNUSABLE = (
    f"postgresql://me:{HIDE}@127.0.0.1:port/x",
    f"postgresql://me:{HIDE}@127.0.0.1:99999/x",
    f"postgresql://me:{HIDE}?@127.0.0.1/x",
    f"postgresql://me:{HIDE}@{'h' * 70}.test/x",
    f"postgresql://me:{HIDE}@/x?host=/nowhere",
    f"postgresql+psycopg://me:{HIDE}@127.0.0.1/x",
    f"mysql://me:{HIDE}@127.0.0.1/x",
    f"sqlite://me:{HIDE}@host/x",
    f"sqlite://me:{HIDE}@host:port/x",
    "sqlite+other:////tmp/x",
    "sqlite:x",
    "sqlite:///x%00y",
    "sqlite:///~nobody-of-this-name/x",
    f"sqlite:////tmp/{'x' * 300}",
    "sqlite:////dev/null/x",
    "sqlite:////tmp",
    "nonsense",
)


@pytest.mark.parametrize("url", UNUSABLE)
def test_unusable_database_is_a_finding_and_refuses_start(
    home: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check, the start and operator commands give the reason and the cure; none quotes the password."""
    for name, value in environment(home, {"TOOLGATE_DATABASE_URL": url, "TOOLGATE_SECRET": SECRET}).items():
        monkeypatch.setenv(name, value)
    report = check({}, ())
    (finding,) = [one for one in report.findings if one.check == "database"]
    assert (finding.state, bool(finding.hint)) == ("wrong", True)
    assert HIDE not in str(report)
    for refused in (lambda: serve("127.0.0.1", 0, {}, pytest.fail), prune_now, lambda: current(None)):
        with pytest.raises(StartError) as error:
            refused()
        assert HIDE not in str(error.value)
    assert _everything(home) == {}


def test_port_that_is_not_a_number_has_a_hint_about_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET", SECRET)
    report = check({"database_url": "postgresql://me:pa/ss@127.0.0.1/x"}, ())
    (finding,) = [one for one in report.findings if one.check == "database"]
    assert finding.message.endswith("a port of the database URL is not a number")
    assert finding.hint
    assert finding.hint.startswith("percent-encode special characters in the password; write ")


def test_secret_that_is_a_part_of_a_setting_name_does_not_hide_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET", "SECRET")
    report = check({}, ())
    assert "TOOLGATE_SECRET: is too short" in report.findings[0].message


@pytest.mark.parametrize(
    ("secrets", "message", "shown"),
    [
        (["SECRET"], "TOOLGATE_SECRET: 'SECRET' SECRETS", "TOOLGATE_SECRET: '…' …S"),
        (["TOOLGATE_SECRET-1"], "TOOLGATE_SECRET-1 is wrong", "… is wrong"),
        (["TOOLGATE_SECRET"], "TOOLGATE_SECRET is wrong", "… is wrong"),
        (["SECRET"], "MY_TOOLGATE_SECRET TOOLGATE_SECRETS", "MY_TOOLGATE_… TOOLGATE_…S"),
        (["a.c-longer", "a.c"], "a.c-longer abc a.c", "… abc …"),
        ([], "TOOLGATE_SECRET", "TOOLGATE_SECRET"),
    ],
)
def test_secrets_are_hidden_and_names_of_settings_are_not(
    secrets: list[str], message: str, shown: str
) -> None:
    finding = hide_secrets(Finding("settings", "wrong", message, message), secrets)
    assert (finding.message, finding.hint) == (shown, shown)


def test_server_that_is_not_postgresql_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    class Http(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(100)
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Http) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"postgresql://me:{HIDE}@127.0.0.1:{server.server_address[1]}/x?sslmode=disable"
        monkeypatch.setenv("TOOLGATE_SECRET", SECRET)
        report = check({"database_url": url}, ())
        server.shutdown()
        thread.join()
    (finding,) = [one for one in report.findings if one.check == "database"]
    assert (finding.state, HIDE in str(report)) == ("wrong", False)


def test_missing_driver_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    for name in [name for name in sys.modules if name.startswith("toolgate_service.db.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv("TOOLGATE_SECRET", SECRET)
    report = check({"database_url": "postgresql://me@127.0.0.1:1/x"}, ())
    (finding,) = [one for one in report.findings if one.check == "database"]
    assert "'asyncpg'" in finding.message
    assert finding.hint == "install it with: pip install 'toolgate[postgres]'"


def test_the_mail_server_is_asked_and_sent_nothing(home: Path) -> None:
    """One that lets us in is well, one that is away is named; no mail goes out."""
    extra = {"TOOLGATE_MAIL_FROM": "gate@example.test", "TOOLGATE_PUBLIC_URL": "https://gate.example.test"}
    with Mailbox() as mailbox:
        url = mailbox.url()
        assert _checked(home, 0, extra | {"TOOLGATE_SMTP_URL": url})["mail"]["state"] == "ok"
        assert mailbox.mails == []
    assert "cannot be reached" in _checked(home, 1, extra | {"TOOLGATE_SMTP_URL": url})["mail"]["says"]


def test_certificate_and_key_are_looked_at(home: Path, tmp_path: Path) -> None:
    """They must fit; until when the certificate is good is told."""
    certificate, key = certificate_for("localhost", tmp_path)
    extra = {"TOOLGATE_TLS_CERT": str(certificate), "TOOLGATE_TLS_KEY": str(key)}
    assert "is valid until" in _checked(home, 0, extra)["tls"]["says"]
    assert _checked(home, 1, extra | {"TOOLGATE_TLS_KEY": str(certificate)})["tls"]["state"] == "wrong"


def test_redis_is_asked(home: Path) -> None:
    """A server that answers is well; one that refuses us, or is away, is wrong, and its password stays hidden."""
    with Valkey(password=HIDE) as valkey:
        assert _checked(home, 0, {"TOOLGATE_REDIS_URL": valkey.url})["redis"]["state"] == "ok"
        wrong = valkey.url.replace(HIDE, HIDE[::-1])
        refused = _checked(home, 1, {"TOOLGATE_REDIS_URL": wrong})["redis"]
    away = _checked(home, 1, {"TOOLGATE_REDIS_URL": valkey.url})["redis"]
    for finding in (refused, away):
        assert finding["state"] == "wrong"
        assert HIDE not in str(finding)
        assert HIDE[::-1] not in str(finding)


def test_lines_for_people(home: Path) -> None:
    """Without --json there is a line for each setting and each finding."""
    ended = _run(home, "check", extra={"TOOLGATE_WORKERS": "0"})
    assert ended.returncode == 1
    settings, _, findings = ended.stdout.partition("\n\n")
    assert len(settings.splitlines()) == len(Settings.model_fields)
    assert findings.startswith("WRONG    settings   TOOLGATE_WORKERS: ")
    assert os.linesep in ended.stdout
