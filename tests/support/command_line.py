"""`toolgate` as a user runs it, in a home of its own."""

import subprocess
import sys
from pathlib import Path

from support.forking import FORK_SERVER
from support.gateway import PASSWORD, Owner
from support.serving import environment
from support.terminal import Terminal


class CommandLine:
    """One user's home and shell."""

    def __init__(self, home: Path) -> None:
        self.home = home
        # Where user_config_path looks, on whatever system.
        self.env = environment(home, {"XDG_CONFIG_HOME": str(home / "config"), "PYTHONUTF8": "1"})

    @property
    def login_file(self) -> Path:
        """Where the login is stored."""
        return self.home / "config" / "toolgate" / "login.json"

    def run(self, *arguments: str, typed: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command without a terminal."""
        return FORK_SERVER.run(*arguments, env=self.env, typed=typed or "")

    def command(self, *arguments: str) -> list[str]:
        """Return the words that start a command."""
        return [sys.executable, "-m", "toolgate", *arguments]

    def at_terminal(self, *arguments: str, columns: int = 100) -> Terminal:
        """Start a command at a terminal."""
        return Terminal(*arguments, env=self.env, columns=columns)

    def done(self, *arguments: str, typed: str | None = None) -> str:
        """Run a command that must succeed, and return what it printed."""
        ended = self.run(*arguments, typed=typed)
        assert (ended.returncode, ended.stderr) == (0, ""), ended
        return ended.stdout

    def refused(self, *arguments: str, typed: str | None = None) -> str:
        """Run a command that must refuse in one line, and return the line."""
        ended = self.run(*arguments, typed=typed)
        assert ended.returncode == 1, ended
        (line,) = ended.stderr.splitlines()
        assert line.startswith("toolgate: "), ended
        return line.removeprefix("toolgate: ")

    def log_in(self, owner: Owner) -> None:
        """Log in as somebody, as scripts do."""
        self.done(
            "login", "--url", owner.url, "--email", owner.email, "--password-stdin", typed=f"{PASSWORD}\n"
        )
