from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.pretend_gateway import APPROVAL, PretendGateway
from typer.testing import CliRunner

from toolgate.cli.app import app
from toolgate.cli.stored_login import StoredLogin

Run = Callable[..., Any]


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendGateway]:
    """A gateway with one pending approval, where ada@example.test is logged in."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
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
