"""State file: keys and checkpoints that earlier verifications have seen."""

import json
import os
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from .formats import parse_json
from .notes import Checkpoint, Key, VerificationError

STATE_FORMAT: Final = "toolgate.log-state/v1"


class State:
    """Keys and checkpoints of earlier verifications, by origin, in a JSON file.

    Raises:
        VerificationError: the file cannot be read, or it is not a state file.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._logs: dict[str, dict[str, Any]] = {}
        if path is None:
            return
        try:
            self._logs = _read_logs(path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError, VerificationError) as error:
            raise VerificationError(
                f"{str(path)!r} is not a state file of this verifier: {error!r}"
            ) from None

    def pinned(self, origin: str) -> str | None:
        """Return the pinned key of a log."""
        log = self._logs.get(origin)
        return log["vkey"] if log else None

    def seen(self, origin: str) -> dict[int, bytes]:
        """Return the root hash of each seen checkpoint of a log, by size."""
        log = self._logs.get(origin)
        return {size: b64decode(each["root"]) for size, each in log["checkpoints"].items()} if log else {}

    def former_origin(self, origin: str) -> str | None:
        """Return another origin with the same organization and environment, if one was seen."""
        suffix = origin.rpartition("/tlog/")[2]
        same = (each for each in self._logs if each.rpartition("/tlog/")[2] == suffix)
        return None if origin in self._logs else next(same, None)

    def add(self, key: Key, checkpoints: Iterable[Checkpoint]) -> None:
        """Pin the key of a log, add verified checkpoints of the log, and write the state file.

        Raises:
            VerificationError: the file cannot be written.
        """
        log = self._logs.setdefault(key.name, {"vkey": key.vkey, "checkpoints": {}})
        for each in checkpoints:
            entry = {"size": each.size, "root": b64encode(each.root).decode(), "note": each.note}
            log["checkpoints"].setdefault(each.size, entry)
        if self._path is None:
            return
        logs = {
            origin: {
                "vkey": log["vkey"],
                "checkpoints": [one for _, one in sorted(log["checkpoints"].items())],
            }
            for origin, log in self._logs.items()
        }
        content = json.dumps({"format": STATE_FORMAT, "logs": logs}, indent=1) + "\n"
        try:
            handle, temporary = tempfile.mkstemp(prefix=".state.", dir=self._path.resolve().parent)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).replace(self._path.resolve())
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise VerificationError(f"cannot write {str(self._path)!r}: {error.strerror}") from None


def _read_logs(content: bytes) -> dict[str, dict[str, Any]]:
    stored = parse_json(content)
    if stored["format"] != STATE_FORMAT:
        raise ValueError("unknown format")
    return {origin: _read_log(origin, log) for origin, log in stored["logs"].items()}


def _read_log(origin: str, log: dict[str, Any]) -> dict[str, Any]:
    seen = {each["size"]: each for each in log["checkpoints"]}
    roots = [b64decode(each["root"], validate=True) for each in seen.values()]
    if any(type(size) is not int for size in seen) or any(
        len(root) != sha256().digest_size for root in roots
    ):
        raise ValueError("malformed checkpoint")
    if Key.parse(log["vkey"]).name != origin:
        raise ValueError("the name of the key differs from the name of the log")
    return {"vkey": log["vkey"], "checkpoints": seen}
