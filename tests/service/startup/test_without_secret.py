"""A gateway on a PostgreSQL server without a secret does not start (decisions §9)."""

from pathlib import Path

import pytest
from support.databases import database_url, without_warnings
from support.serving import run_serve

pytestmark = pytest.mark.postgresql_only("the embedded database's gateway makes its own secret")


def test_a_gateway_on_a_server_needs_a_secret(tmp_path: Path) -> None:
    """One line names the setting, the command ends with 1, and no secret is made anywhere."""
    home = tmp_path / "home"
    home.mkdir()
    ended = run_serve(home, extra={"TOOLGATE_DATABASE_URL": database_url(tmp_path)})
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = without_warnings(ended.stderr).splitlines()
    assert "TOOLGATE_SECRET is not set" in line
    assert list(home.iterdir()) == []
