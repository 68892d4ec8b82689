"""A gateway that cannot start says why in one line, ends with an error, and has changed nothing."""

import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from support.serving import environment, run_serve

from toolgate_service.server.run import StartError, serve

LONG_SECRET = {"TOOLGATE_SECRET": "a secret for tests, long enough"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home."""
    home = tmp_path / "home"
    home.mkdir()
    return home


def _everything(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def _assert_refused(ended: subprocess.CompletedProcess[str], *words: str) -> None:
    assert ended.returncode == 1, ended
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("toolgate: ")
    assert "Traceback" not in line
    for word in words:
        assert word in line


def test_a_taken_port(home: Path) -> None:
    """A port that another program has is named, with the way to choose another, and no file is made."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run_serve(home, "--port", str(port))
    _assert_refused(ended, f"127.0.0.1:{port}", "in use", "--port")
    assert _everything(home) == {}


@pytest.fixture
def odd_things(home: Path) -> None:
    """A home with a folder, notes, and the database of a later version."""
    (home / "folder").mkdir()
    (home / "file").write_text("these are my notes, and no database\n" * 200)
    newer = sqlite3.connect(home / "newer.db")
    newer.executescript(
        "CREATE TABLE alembic_version (version_num TEXT); INSERT INTO alembic_version VALUES ('9999')"
    )
    newer.close()


@pytest.mark.usefixtures("odd_things")
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite:////proc/toolgate/gateway.db", ["/proc/toolgate/gateway.db", "sqlite:///PATH"]),
        ("sqlite:///{home}/file", ["{home}/file", "not a database", "sqlite:///PATH"]),
    ],
)
def test_a_database_that_cannot_be_used(home: Path, url: str, words: list[str]) -> None:
    """A database that cannot be written, and a file that is none, are refused by the command and left untouched."""
    before = _everything(home)
    ended = run_serve(home, extra={"TOOLGATE_DATABASE_URL": url.format(home=home)})
    _assert_refused(ended, *[word.format(home=home) for word in words])
    assert _everything(home) == before


@pytest.mark.usefixtures("odd_things")
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite:///{home}/file/gateway.db", ["{home}/file/gateway.db", "sqlite:///PATH"]),
        ("sqlite:///{home}/folder", ["{home}/folder", "directory", "sqlite:///PATH"]),
        ("sqlite:///{home}/newer.db", ["schema", "upgrade"]),
        ("postgresql://user:hunter2@localhost:1/toolgate", ["PostgreSQL", "postgresql://USER"]),
        ("postgresql://user:hunter2@[::1/toolgate", ["not a database URL"]),
        ("postgresql://user:hunter2@localhost/x?sslmode=hunter2", ["PostgreSQL"]),
        ("mysql://user:hunter2@localhost/toolgate", ["'mysql'", "postgresql://USER", "sqlite:///PATH"]),
        ("nonsense://", ["'nonsense'", "sqlite:///PATH"]),
        ("gateway.db", ["not a database URL", "sqlite:///PATH"]),
        ("sqlite://", ["does not contain the path of a file", "sqlite:///PATH"]),
    ],
)
def test_a_database_url_that_leads_nowhere(
    home: Path, url: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database under a file, a folder, a newer or another kind of one is refused in one line and left untouched."""
    before = _everything(home)
    message = _refusal(home, monkeypatch, {"TOOLGATE_DATABASE_URL": url.format(home=home)})
    for word in words:
        assert word.format(home=home) in message
    assert "hunter2" not in message
    after = _everything(home)
    if "newer" in url:
        # Opening it to look at its version may have changed the file's journal mode, but nothing in it.
        kept = sqlite3.connect(home / "newer.db")
        assert kept.execute("SELECT * FROM alembic_version").fetchall() == [("9999",)]
        assert kept.execute("SELECT count(*) FROM sqlite_schema").fetchall() == [(1,)]
        kept.close()
        before.pop("newer.db")
        after.pop("newer.db")
    assert after == before


def _refusal(home: Path, monkeypatch: pytest.MonkeyPatch, extra: dict[str, str]) -> str:
    """Return the one line with which the gateway refuses to start in this very process."""
    for name in os.environ:
        if name.startswith(("TOOLGATE_", "XDG_")):
            monkeypatch.delenv(name)
    for name, value in {"HOME": str(home), **extra}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StartError) as refused:
        serve("127.0.0.1", 0, {}, pytest.fail)
    (line,) = str(refused.value).splitlines()
    return line


def test_a_secret_that_is_short(home: Path) -> None:
    """A secret short enough to guess is refused without being repeated, and no file is made."""
    ended = run_serve(home, extra={"TOOLGATE_SECRET": "hunter2"})
    _assert_refused(ended, "TOOLGATE_SECRET", "at least 16")
    assert "hunter2" not in ended.stderr
    assert _everything(home) == {}


def test_a_stored_secret_that_was_spoilt(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An emptied secret file is named rather than used or replaced."""
    folder = home / ".config" / "toolgate"
    folder.mkdir(parents=True)
    (folder / "secret").write_text("")
    assert str(folder / "secret") in _refusal(home, monkeypatch, {})
    assert (folder / "secret").read_text() == ""


def test_a_secret_that_cannot_be_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a place for the secret, the place is named and TOOLGATE_SECRET as the way out."""
    (home / "file").touch()
    message = _refusal(home, monkeypatch, {"XDG_CONFIG_HOME": f"{home}/file"})
    assert f"{home}/file/toolgate/secret" in message
    assert "TOOLGATE_SECRET" in message


def test_a_plan_that_does_not_exist(home: Path) -> None:
    """An unknown plan is named beside those that exist, and no file is made."""
    _assert_refused(run_serve(home, "--plan", "gold"), "'gold'", "free, pro, business, enterprise")
    assert _everything(home) == {}


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("TOOLGATE_DEFAULT_PLAN", "gold", "free, pro, business, enterprise"),
        ("TOOLGATE_APPROVAL_TTL_SECONDS", "a day", "integer"),
        ("TOOLGATE_LOGIN_THREADS", "0", "greater than 0"),
    ],
)
def test_a_setting_that_makes_no_sense(
    home: Path, name: str, value: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting of the environment that cannot be is named, and no file is made."""
    message = _refusal(home, monkeypatch, {name: value})
    assert message.startswith(f"{name}: ")
    assert word in message
    assert _everything(home) == {}


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
sys.argv = ["toolgate", "serve", "--port", "0"]
from toolgate_cli import main
main()
"""


@pytest.mark.parametrize(
    ("missing", "install"),
    [
        ({"typer", "rich"}, "pip install 'toolgate[cli]'"),
        pytest.param({"rich"}, "pip install 'toolgate[cli]'", marks=pytest.mark.slow),
        pytest.param(
            {"fastapi", "starlette", "uvicorn", "sqlmodel", "sqlalchemy"},
            "pip install 'toolgate[service]'",
            marks=pytest.mark.slow,
        ),
        pytest.param({"alembic"}, "pip install 'toolgate[service]'", marks=pytest.mark.slow),
    ],
)
def test_an_extra_that_is_not_installed(home: Path, missing: set[str], install: str) -> None:
    """Without what the command or the gateway needs, one line says what to install."""
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(missing=missing)],
        env=environment(home, LONG_SECRET),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    _assert_refused(ended, install)
    assert _everything(home) == {}
