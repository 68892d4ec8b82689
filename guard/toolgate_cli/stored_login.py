"""The login that commands use: a token of scope ``cli`` in the user's configuration folder (decisions §13).

It reads, and manages agents; it decides nothing and shows no key.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from toolgate._files import PrivateFileError, read_private, remove_private, write_private
from toolgate_cli.answers import ManagementError
from toolgate_cli.management import Management
from toolgate_cli.output import fail


@dataclass(frozen=True, slots=True)
class StoredLogin:
    """Who is logged in, and where.

    Attributes:
        url: the gateway's address; the token goes nowhere else.
        email: the user.
        token: never shown.
    """

    url: str
    email: str
    token: str = field(repr=False)

    @classmethod
    def find(cls) -> "StoredLogin | None":
        """Return what was stored, or None when nobody is logged in.

        Raises:
            PrivateFileError: the file is not as it must be.
        """
        path = login_path()
        content = read_private(path)
        if content is None:
            return None
        try:
            stored = json.loads(content)
            url, email, token = stored["url"], stored["email"], stored["token"]
        except (ValueError, TypeError, KeyError, RecursionError):
            url = email = token = None
        # What goes into a header must be fit for one: the error would show it.
        fit = isinstance(token, str) and token and all("!" <= char <= "~" for char in token)
        if not (isinstance(url, str) and isinstance(email, str) and fit):
            raise PrivateFileError(
                f"{str(path)!r} cannot be read as a login; log in again, which replaces it"
            )
        return cls(url, email, token)

    @classmethod
    def required(cls) -> "StoredLogin":
        """Return what was stored.

        Raises:
            typer.Exit: nobody is logged in, or the file is not as it must be; one line says what to do.
        """
        try:
            stored = cls.find()
        except PrivateFileError as error:
            fail(str(error))
        if stored is None:
            fail("you are not logged in; run: toolgate login --url URL --email EMAIL")
        return stored

    def save(self) -> None:
        """Store it in place of the former.

        Raises:
            PrivateFileError: it cannot be stored.
        """
        content = {"url": self.url, "email": self.email, "token": self.token}
        write_private(login_path(), json.dumps(content).encode())

    @staticmethod
    def forget() -> None:
        """Remove what was stored.

        Raises:
            PrivateFileError: it cannot be removed.
        """
        remove_private(login_path())

    def management(self) -> Management:
        """Begin a conversation with it."""
        return Management(self.url, self.token)


def login_path() -> Path:
    """Return where the login is stored."""
    from platformdirs import user_config_path

    return user_config_path("toolgate", appauthor=False) / "login.json"


def explain(error: ManagementError) -> str:
    """Return a refusal's message; for a login that is over, what to do."""
    if error.is_login_over:
        return "your login has ended; run: toolgate login"
    return str(error)
