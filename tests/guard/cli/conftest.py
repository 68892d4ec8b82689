from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.gateway import Owner
from support.pretend_gateway import APPROVAL, PretendGateway
from support.shell import Shell
from typer.main import get_command
from typer.testing import CliRunner

from toolgate_cli.app import app
from toolgate_cli.credentials import StoredLogin

Run = Callable[..., Any]


@pytest.fixture(autouse=True, scope="session")
def cached_commands() -> Iterator[None]:
    """Build the commands of the app once: it takes four times as long as an average command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        yield


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, where nobody is logged in and nothing is set."""
    for name in ("URL", "API_KEY", "AGENT_ID", "TIMEOUT", "HTTP"):
        monkeypatch.delenv(f"TOOLGATE_{name}", raising=False)
    for name in ("CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.fixture
def gateway(home: Path) -> Iterator[PretendGateway]:
    """A gateway with one pending approval, where ada@example.test is logged in."""
    with PretendGateway() as gateway:
        gateway.approvals = [dict(APPROVAL)]
        StoredLogin(gateway.url, "ada@example.test", "stored-token").save()
        yield gateway


@pytest.fixture
def run(gateway: PretendGateway) -> Run:
    """Runs a command in this process and returns its exit code and what it printed."""

    def run(*arguments: str, typed: str = "the password\n") -> Any:
        return CliRunner().invoke(app, arguments, input=typed)

    return run


@pytest.fixture
def shell(home: Path, owner: Owner) -> Shell:
    """The owner at a shell in this process, logged in at a live gateway."""
    return Shell.of(owner)
