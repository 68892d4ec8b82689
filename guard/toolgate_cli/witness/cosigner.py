"""Handling of the requests to a witness, independent of the HTTP server.

The requests, the order of the checks and the statuses are defined by https://c2sp.org/tlog-witness.
"""

import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from hashlib import sha256
from http import HTTPStatus
from typing import Final, NamedTuple

from toolgate_cli.log.verification.merkle import is_consistent
from toolgate_cli.log.verification.notes import Key, VerificationError, open_note
from toolgate_cli.witness.keys import WitnessKey
from toolgate_cli.witness.logs import Logs
from toolgate_cli.witness.state import Cosigned, WitnessState
from toolgate_cli.witness.submission import Submission, SubmissionError, parse_submission

TEXT: Final = "text/plain; charset=utf-8"
SIZE: Final = "text/x.tlog.size"

_EMPTY_ROOT: Final = sha256().digest()


class Reply(NamedTuple):
    """Response to a request."""

    status: HTTPStatus
    body: str
    content_type: str = TEXT


class _Rejected(Exception):
    """The checkpoint was not cosigned; the reply contains the reason."""

    def __init__(self, status: HTTPStatus, body: str, content_type: str = TEXT) -> None:
        super().__init__(body)
        self.reply = Reply(status, f"{body}\n", content_type)


class Cosigner:
    """Cosigns the checkpoints of the configured logs, each only if it is consistent with the latest one.

    Args:
        key: key of the witness.
        logs: the logs and their keys.
        state: the latest cosigned checkpoints.
        clock: function that returns the seconds since 1970.
    """

    def __init__(
        self, key: WitnessKey, logs: Logs, state: WitnessState, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._key = key
        self._logs = logs
        self._state = state
        self._clock = clock
        self._origins = {hash_origin(origin): origin for origin in logs}

    def add_checkpoint(self, body: bytes) -> Reply:
        """Return the reply to the body of `add-checkpoint`; a cosignature is stored before this method returns it.

        Raises:
            sqlite3.Error: the state cannot be read or written.
        """
        try:
            return self._cosign(parse_submission(body))
        except SubmissionError as error:
            return Reply(HTTPStatus.BAD_REQUEST, f"{error}\n")
        except _Rejected as rejected:
            return rejected.reply

    def get_checkpoint(self, origin_hash: str) -> Reply:
        """Return the latest cosigned checkpoint of a log, for monitors.

        Args:
            origin_hash: hexadecimal SHA-256 hash of the log's origin.

        Raises:
            sqlite3.Error: the state cannot be read.
        """
        origin = self._origins.get(origin_hash)
        latest = None if origin is None else self._state.latest(origin)
        if latest is None:
            return Reply(HTTPStatus.NOT_FOUND, "no checkpoint was cosigned for this origin\n")
        return Reply(HTTPStatus.OK, latest.note)

    def _cosign(self, submission: Submission) -> Reply:
        verified = self._verify_log(submission)
        if submission.old_size > submission.size:
            raise _Rejected(HTTPStatus.BAD_REQUEST, "the old size is larger than the size of the checkpoint")
        cosignature = ""

        def decide(latest: Cosigned | None) -> Cosigned:
            nonlocal cosignature
            _check_consistency(submission, latest)
            # The time is read inside the transaction. Otherwise, a smaller checkpoint could have a later time than a
            # larger one, and a cosignature states that no larger checkpoint was cosigned at its time.
            cosignature = self._key.cosign(submission.text, int(self._clock()))
            return Cosigned(submission.size, submission.root, f"{submission.text}\n{verified}{cosignature}")

        self._state.update(submission.origin, decide)
        return Reply(HTTPStatus.OK, cosignature)

    def _verify_log(self, submission: Submission) -> str:
        """Return the signature lines of the log, which are valid."""
        keys = self._logs.get(submission.origin)
        if keys is None:
            raise _Rejected(HTTPStatus.NOT_FOUND, "unknown origin")
        try:
            _, signed = open_note(submission.note, keys)
        except VerificationError as error:
            raise _Rejected(HTTPStatus.FORBIDDEN, str(error)) from None
        if not signed:
            raise _Rejected(HTTPStatus.FORBIDDEN, "no signature of a trusted key of the log")
        # A dictionary removes repeated lines and keeps the order.
        return "".join(dict.fromkeys(line for key in keys for line in _lines_of(submission.note, key)))


def hash_origin(origin: str) -> str:
    """Return the hexadecimal SHA-256 hash of an origin, which is part of the path of the latest checkpoint."""
    return sha256(origin.encode()).hexdigest()


def _lines_of(note: str, key: Key) -> Iterator[str]:
    for line in note.rpartition("\n\n")[2].splitlines(keepends=True):
        _, name, data = line.split(" ")
        if name == key.name and b64decode(data).startswith(key.id):
            yield line


def _check_consistency(submission: Submission, latest: Cosigned | None) -> None:
    size, root = (latest.size, latest.root) if latest else (0, _EMPTY_ROOT)
    if submission.old_size != size:
        raise _Rejected(HTTPStatus.CONFLICT, str(size), SIZE)
    is_valid = is_consistent(size, root, submission.size, submission.root, submission.proof)
    if not is_valid or (submission.size == 0 and submission.root != _EMPTY_ROOT):
        raise _Rejected(
            HTTPStatus.UNPROCESSABLE_ENTITY, "the consistency proof or the root hash is not valid"
        )
