"""What Claude Code shows to the server that answers its hooks, so that nobody else is answered."""

import os
import secrets
import shlex
from pathlib import Path
from typing import Final

from platformdirs import user_state_path

from toolgate._files import Hint, PrivateFileError, read_private, write_private
from toolgate_cli.hook.over_http import SECRET

_HINT: Final = Hint("start toolgate hook serve again", "remove it, and start toolgate hook serve again")
_SHORTEST: Final = 32


def secret_path() -> Path:
    """Return where it is kept."""
    return user_state_path("toolgate", appauthor=False) / "hook-secret"


def find_secret() -> str:
    """Return the secret of this installation: the environment's, or the one that is kept; made when first needed.

    Raises:
        PrivateFileError: the file is not as it must be, or cannot be written.
    """
    if given := os.environ.get(SECRET):
        return _checked(given, SECRET)
    path = secret_path()
    if read_private(path, hint=_HINT) is None:
        write_private(path, f"{secrets.token_urlsafe(_SHORTEST)}\n".encode(), hint=_HINT)
    # Read again: of two that make it at a time the last one counts for both.
    found = read_private(path, hint=_HINT) or b""
    return _checked(found.decode("ascii", "replace").strip(), repr(str(path)))


def export_line() -> str:
    """Return the line by which a shell has Claude Code know it."""
    if os.environ.get(SECRET):
        # No file was made: read from there it would be empty.
        return f"with the {SECRET} that is set here"
    return f'export {SECRET}="$(cat {shlex.quote(str(secret_path()))})"'


def _checked(given: str, where: str) -> str:
    # Fit for a header, and not to be guessed.
    if len(given) < _SHORTEST or not all("!" <= char <= "~" for char in given):
        raise PrivateFileError(
            f"{where} is no secret: use {_SHORTEST} characters or more, visible ones of ASCII, or remove it"
        )
    return given
