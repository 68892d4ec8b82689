"""Commands that take long say at a terminal what they do."""

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.forking import FORK_SERVER
from support.serving import environment
from support.terminal import Terminal

pytestmark = pytest.mark.sqlite_only("the commands are run on an SQLite file")


def test_a_person_at_a_terminal_sees_progress(tmp_path: Path) -> None:
    """Before a gateway serves, and while a database is worked on."""
    env = environment(tmp_path)
    with Terminal("serve", "--port", "0", env=env) as serving:
        assert "Toolgate gateway on" not in serving.wait_for("starting the gateway \u2026")
        serving.wait_for("Press Ctrl-C to stop.")
        serving.process.send_signal(signal.SIGTERM)
        assert serving.end() == 0
    with Terminal("db", "check", env=env) as checking:
        checking.wait_for("checking the database \u2026")
        assert checking.end() == 0


def test_scripts_are_not_told(tmp_path: Path) -> None:
    """Without a terminal standard error stays empty."""
    url = f"sqlite:///{tmp_path / 'gate.db'}"
    with closing(sqlite3.connect(tmp_path / "gate.db")):
        pass
    ended = FORK_SERVER.run("db", "current", env=environment(tmp_path, {"TOOLGATE_DATABASE_URL": url}))
    assert ended.stderr == ""
