"""Signed notes, checkpoints and cosignatures: c2sp.org/signed-note, tlog-checkpoint and tlog-cosignature."""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_MAX_SIGNATURES: Final = 100
_MAX_SHOWN: Final = 200
_VKEY_BYTES: Final = 33
_KEY_ID_BYTES: Final = 4
#: type of the key of a log, and of the key of a witness
LOG, WITNESS = 1, 4


class VerificationError(Exception):
    """A key, note, receipt or state file is invalid; the message is one line."""


@dataclass(frozen=True)
class Key:
    """Public Ed25519 key of a log or a witness, in the form of a vkey: ``name+key id+base64``."""

    name: str
    id: bytes
    type: int
    public: Ed25519PublicKey
    vkey: str

    @classmethod
    def parse(cls, vkey: str) -> "Key":
        """Return the key of a vkey.

        Raises:
            VerificationError: the vkey is invalid.
        """
        name, _, rest = vkey.partition("+")
        digits, _, encoded = rest.partition("+")
        try:
            material = b64decode(encoded.encode("ascii"), validate=True)
            key_id = sha256(name.encode() + b"\n" + material).digest()[:4]
            is_valid = (
                digits == key_id.hex() and len(material) == _VKEY_BYTES and material[0] in {LOG, WITNESS}
            )
            if is_valid and name and not re.search(r"\s", name):
                return cls(name, key_id, material[0], Ed25519PublicKey.from_public_bytes(material[1:]), vkey)
        except ValueError:
            pass
        raise VerificationError(f"invalid key {show(vkey)}: expected NAME+KEY_ID+BASE64 of an Ed25519 key")


@dataclass(frozen=True)
class Checkpoint:
    """Checkpoint of a log with a valid signature.

    Attributes:
        note: the whole signed note.
        witnesses: name of each witness with a valid cosignature, and the POSIX time of the cosignature.
    """

    origin: str
    size: int
    root: bytes
    note: str
    witnesses: Mapping[str, int] = field(default_factory=dict)


_SIGNATURE = re.compile(r"— (\S+) ([A-Za-z0-9+/]+={0,2})")
_SIZE = re.compile(r"0|[1-9][0-9]{0,17}")


def open_note(note: str, keys: Iterable[Key]) -> tuple[str, dict[str, int]]:
    """Return the text of a signed note, and the vkeys of the keys that signed it; other signatures are ignored.

    The value of a witness's vkey is the POSIX time of the cosignature, and 0 for other keys.

    Raises:
        VerificationError: the note is malformed, or the signature of one of the keys is invalid.
    """
    head, separator, tail = note.rpartition("\n\n")
    lines = tail.split("\n")
    if not (separator and head and len(lines) > 1 and lines.pop() == "" and len(lines) <= _MAX_SIGNATURES):
        raise VerificationError("malformed note: expected a text, an empty line and signature lines")
    text, known, signed = head + "\n", {(key.name, key.id): key for key in keys}, dict[str, int]()
    if re.search(r"[\x00-\x09\x0b-\x1f\ud800-\udfff]", note):
        raise VerificationError("malformed note: it contains control characters")
    for line in lines:
        found = _SIGNATURE.fullmatch(line)
        raw = decode_base64(found[2]) if found else None
        if not found or raw is None or len(raw) <= _KEY_ID_BYTES:
            raise VerificationError(f"malformed signature line {show(line)}")
        key, signature = known.get((found[1], raw[:_KEY_ID_BYTES])), raw[_KEY_ID_BYTES:]
        if key is None:
            continue
        message, moment = text, 0
        if key.type == WITNESS:
            moment, signature = int.from_bytes(signature[:8], "big"), signature[8:]
            message = f"cosignature/v1\ntime {moment}\n{text}"
        try:
            key.public.verify(signature, message.encode())
        except InvalidSignature:
            raise VerificationError(f"the signature of {show(key.name)} is invalid") from None
        signed[key.vkey] = moment
    return text, signed


def open_checkpoint(note: str, key: Key, witnesses: Sequence[Key] = ()) -> Checkpoint:
    """Return the checkpoint in a signed note.

    Raises:
        VerificationError: the note is malformed, its origin is not the key's name, or the key did not sign it.
    """
    text, signed = open_note(note, (key, *witnesses))
    origin, size, root, *_ = [*text.split("\n"), "", ""]
    decoded = decode_base64(root)
    if not _SIZE.fullmatch(size) or decoded is None or len(decoded) != sha256().digest_size:
        raise VerificationError("malformed checkpoint: expected the lines origin, size and root hash")
    if origin != key.name:
        raise VerificationError(
            f"the checkpoint belongs to the log {show(origin)}, not to the log {show(key.name)}"
        )
    if key.vkey not in signed:
        raise VerificationError(f"the checkpoint has no signature of the key {show(key.vkey)}")
    if size == "0" and decoded != sha256().digest():
        raise VerificationError(
            "the checkpoint of an empty log does not have the root hash of the empty tree"
        )
    cosigned = {each.name: signed[each.vkey] for each in witnesses if each.vkey in signed}
    return Checkpoint(origin, int(size), decoded, note, cosigned)


def show(text: object) -> str:
    """Return a text quoted, in ASCII without control characters, and shortened."""
    shown = ascii(text.decode(errors="backslashreplace") if isinstance(text, bytes) else text)
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."


def decode_base64(text: str) -> bytes | None:
    """Return the bytes of a canonical base64 text, or None."""
    try:
        raw = b64decode(text.encode("ascii"), validate=True)
    except ValueError:
        return None
    return raw if b64encode(raw).decode() == text else None
