"""Requests to `add-checkpoint`, in the format of https://c2sp.org/tlog-witness."""

import re
from hashlib import sha256
from typing import Final, NamedTuple

from toolgate_cli.log.verification.notes import VerificationError, decode_base64, open_note, show

#: largest tree size; other implementations store sizes as signed 64-bit integers
MAX_SIZE: Final = 2**63 - 1

_MAX_PROOF: Final = 63
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}")
_CHECKPOINT_LINES: Final = 3


class SubmissionError(ValueError):
    """A request is malformed; the message is one line of ASCII."""


class Submission(NamedTuple):
    """Body of a request to `add-checkpoint`, whose signatures and proof are not verified yet.

    Attributes:
        old_size: the size that the client expects the witness to have cosigned.
        proof: hashes of the consistency proof from the old size.
        note: the checkpoint with its signatures.
        text: the checkpoint without signatures, with its last newline.
        origin: the origin of the log.
        size: the size of the log.
        root: the root hash of the log.
    """

    old_size: int
    proof: tuple[bytes, ...]
    note: str
    text: str
    origin: str
    size: int
    root: bytes


def parse_submission(body: bytes) -> Submission:
    """Return the parts of the body of a request.

    Raises:
        SubmissionError: the body is malformed.
    """
    try:
        head, separator, note = body.decode().partition("\n\n")
        text, _ = open_note(note, ())
    except UnicodeDecodeError:
        raise SubmissionError("the body is not UTF-8 text") from None
    except VerificationError as error:
        raise SubmissionError(str(error)) from None
    first, *proof = head.split("\n")
    word, _, old_size = first.partition(" ")
    if not separator or word != "old":
        raise SubmissionError("expected 'old SIZE', the proof, an empty line and the checkpoint")
    if len(proof) > _MAX_PROOF:
        raise SubmissionError(f"the consistency proof has more than {_MAX_PROOF} hashes")
    lines = text[:-1].split("\n")
    if len(lines) < _CHECKPOINT_LINES or not all(lines):
        raise SubmissionError("malformed checkpoint: expected the lines origin, size and root hash")
    hashes = tuple(map(_parse_hash, proof))
    size, root = _parse_size(lines[1]), _parse_hash(lines[2])
    return Submission(_parse_size(old_size), hashes, note, text, lines[0], size, root)


def _parse_size(text: str) -> int:
    if not _DECIMAL.fullmatch(text) or int(text) > MAX_SIZE:
        raise SubmissionError(f"invalid tree size {show(text)}")
    return int(text)


def _parse_hash(text: str) -> bytes:
    data = decode_base64(text)
    if data is None or len(data) != sha256().digest_size:
        raise SubmissionError(f"invalid hash {show(text)}")
    return data
