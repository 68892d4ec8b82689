"""Commands in this process, as somebody logged in types them: many of them in the time that one process takes."""

import json
from typing import Any, Self

from typer.testing import CliRunner

from support.gateway import PASSWORD
from toolgate_cli.app import app
from toolgate_cli.credentials import StoredLogin, request_token


class Shell:
    """Somebody's shell; whose login it is stands in the configuration folder of the environment."""

    @classmethod
    def of(cls, user: Any) -> Self:
        """Log in as an `Owner` or a `Colleague`."""
        StoredLogin(user.url, user.email, request_token(user.url, user.email, PASSWORD, "cli")).save()
        return cls()

    def run(self, *arguments: str, typed: str | None = None) -> Any:
        """Run a command; what it printed is in its `stdout` and `stderr`."""
        return CliRunner().invoke(app, arguments, input=typed or "")

    def done(self, *arguments: str, typed: str | None = None) -> str:
        """Run a command that must succeed, and return its standard output."""
        ended = self.run(*arguments, typed=typed)
        assert ended.exit_code == 0, (ended.output, ended.exception)
        out: str = ended.stdout
        return out

    def json(self, *arguments: str, typed: str | None = None) -> Any:
        """Run a command with `--json` and return what it says, which must be ASCII alone."""
        out = self.done(*arguments, "--json", typed=typed)
        assert out.isascii()
        return json.loads(out)

    def allowed(self, *arguments: str) -> str:
        """Run a command that asks for the password, and give it."""
        return self.done(*arguments, "--password-stdin", typed=f"{PASSWORD}\n")

    def refused(self, *arguments: str, typed: str | None = None) -> str:
        """Run a command that must refuse in one line, with nothing on standard output; return the line."""
        ended = self.run(*arguments, typed=typed)
        assert isinstance(ended.exception, SystemExit), (arguments, ended.exception)
        assert (ended.exit_code, ended.stdout) == (1, ""), (arguments, ended.output)
        (line,) = ended.stderr.splitlines()
        assert line.startswith("toolgate: "), ended.stderr
        told: str = line.removeprefix("toolgate: ")
        return told
