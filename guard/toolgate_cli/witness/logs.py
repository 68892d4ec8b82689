"""Logs whose checkpoints a witness cosigns, and their verifier keys."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from toolgate_cli.log.verification.notes import LOG, Key, VerificationError, show

#: trusted keys of each log, by origin
Logs: TypeAlias = Mapping[str, tuple[Key, ...]]


class LogsError(Exception):
    """The logs of a witness are invalid; the message is one line that ends with the fix."""


def parse_logs(entries: Iterable[str]) -> Logs:
    """Return the trusted keys of the logs by origin.

    Each entry is a verifier key. Its name is the log's origin, unless an origin follows after a space. Several keys of
    one origin are all trusted, so that a log can replace its key.

    Raises:
        LogsError: an entry is invalid.
    """
    logs: dict[str, tuple[Key, ...]] = {}
    for entry in entries:
        vkey, _, origin = entry.strip().partition(" ")
        try:
            key = Key.parse(vkey)
        except VerificationError as error:
            raise LogsError(str(error)) from None
        if key.type != LOG:
            raise LogsError(f"{show(vkey)} is the key of a witness; use the verifier key of a log")
        origin = origin.strip() or key.name
        logs[origin] = (*logs.get(origin, ()), key)
    return logs


def read_logs_file(path: Path) -> list[str]:
    """Return the entries in a file with one verifier key per line; empty lines and lines that begin with # are ignored.

    Raises:
        LogsError: the file cannot be read, or a line is invalid.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is not UTF-8 text"
        raise LogsError(
            f"cannot read {str(path)!r}: {reason}; name a file with one verifier key per line"
        ) from None
    entries = []
    for number, line in enumerate(lines, 1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        try:
            parse_logs([entry])
        except LogsError as error:
            raise LogsError(f"{str(path)!r}, line {number}: {error}") from None
        entries.append(entry)
    return entries
