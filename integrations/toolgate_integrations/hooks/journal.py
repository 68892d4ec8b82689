"""Which tools run just now: written down before they do, by one process, and struck out by another.

What an agent left that is gone ran with an outcome nobody knows.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from platformdirs import user_state_path

from toolgate import ConfigurationError
from toolgate._files import Hint, PrivateFileError, read_private, remove_private, write_private

__all__ = ["Journal", "Running", "digest_of"]

_HINT: Final = Hint("try again", "remove it")
# Far more than the gateway takes of a context.
_LONGEST: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Running:
    """A call that was let through.

    Attributes:
        session: The agent's session.
        call_id: The agent's name of the call.
        process: The agent's process.
        agent_id: Who acts.
        action: Under which action.
        asked: What the gateway was told: hidden values are digests.
        beside: What was shown beside the arguments.
        arguments: The digest of the arguments it may run with.
        approval_id: The approval that let it through, if it was held.
        decision_id: The gateway's decision.
    """

    session: str
    call_id: str
    process: int
    agent_id: str
    action: str
    asked: dict[str, Any]
    beside: dict[str, str]
    arguments: str
    approval_id: str | None
    decision_id: str | None


class Journal:
    """The calls that run, a private file each, in the user's state folder."""

    def __init__(self) -> None:
        self._folder = user_state_path("toolgate", appauthor=False) / "hooks"

    def write(self, call: Running) -> None:
        """Write a call down.

        Raises:
            ConfigurationError: It cannot be: the tool must not run.
        """
        content = json.dumps(asdict(call)).encode()
        try:
            write_private(self._path(call.session, call.call_id), content, hint=_HINT)
        except PrivateFileError as error:
            raise ConfigurationError(f"{error}; set XDG_STATE_HOME to a folder of your own") from error

    def take(self, session: str, call_id: str) -> Running | None:
        """Strike a call out; None if it is not written down, or cannot be read."""
        path = self._path(session, call_id)
        if (call := self._read(path)) is not None:
            remove_private(path)
        return call

    def left(self, session: str | None = None) -> Iterator[Running]:
        """What agents left that are gone, and a session that is over; each is struck out once the next is asked for."""
        for path in sorted(self._folder.glob("*.json")):
            call = self._read(path)
            if call is not None and (call.session == session or not _lives(call.process)):
                yield call
                remove_private(path)

    def _path(self, session: str, call_id: str) -> Path:
        return self._folder / f"{digest_of([session, call_id])}.json"

    def _read(self, path: Path) -> Running | None:
        try:
            found = read_private(path, max_bytes=_LONGEST, hint=_HINT)
            return None if found is None else Running(**json.loads(found))
        except (PrivateFileError, ValueError, TypeError):
            return None


def digest_of(arguments: Any) -> str:
    """What tells two sets of arguments, or two names, apart; also True from 1."""
    return hashlib.sha256(json.dumps(arguments, sort_keys=True, default=str).encode()).hexdigest()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True
