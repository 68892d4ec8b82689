"""Private key of a witness, its file, and the cosignatures that are made with it.

The format of cosignatures is defined by https://c2sp.org/tlog-cosignature.
"""

import os
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from toolgate._files import Hint, PrivateFileError, read_private
from toolgate_cli.log.verification.notes import WITNESS, decode_base64

_PREFIX: Final = "PRIVATE+KEY+"
_MAX_NAME_BYTES: Final = 255
_HINT: Final = Hint(
    "create a key with toolgate witness keygen",
    "create another key with toolgate witness keygen, and replace the witness in the settings of its logs",
)


class WitnessNameError(ValueError):
    """The name of a witness is invalid."""


class WitnessKey:
    """Ed25519 key with which a witness cosigns checkpoints.

    Args:
        name: name of the witness.
        private: the private key.

    Attributes:
        vkey: the verifier key, ``NAME+ID+KEY``.

    Raises:
        WitnessNameError: the name is invalid.
    """

    def __init__(self, name: str, private: Ed25519PrivateKey) -> None:
        _check_name(name)
        public = bytes([WITNESS]) + private.public_key().public_bytes_raw()
        self.name = name
        self._private = private
        self._id = sha256(name.encode() + b"\n" + public).digest()[:4]
        self.vkey = f"{name}+{self._id.hex()}+{b64encode(public).decode()}"

    def cosign(self, text: str, moment: int) -> str:
        """Return the signature line of a cosignature, with its newline.

        Args:
            text: text of the checkpoint, with its last newline and without signatures.
            moment: the time of the cosignature, in seconds since 1970.
        """
        signature = self._private.sign(f"cosignature/v1\ntime {moment}\n{text}".encode())
        data = b64encode(self._id + moment.to_bytes(8, "big") + signature).decode()
        return f"— {self.name} {data}\n"

    def to_text(self) -> str:
        """Return the content of the key's file: ``PRIVATE+KEY+NAME+ID+KEY``, as written by other implementations."""
        data = b64encode(bytes([WITNESS]) + self._private.private_bytes_raw()).decode()
        return f"{_PREFIX}{self.name}+{self._id.hex()}+{data}\n"


def create_key(name: str, path: Path) -> WitnessKey:
    """Create a key, and write it to a new file that only its owner may read.

    Raises:
        WitnessNameError: the name is invalid.
        PrivateFileError: the file exists or cannot be written.
    """
    key = WitnessKey(name, Ed25519PrivateKey.generate())
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(key.to_text())
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise PrivateFileError(
            f"{str(path)!r} exists, and a key is never overwritten; use another --key FILE"
        ) from None
    except OSError as error:
        raise PrivateFileError(f"cannot write {str(path)!r}: {error.strerror}") from None
    return key


def read_key(path: Path) -> WitnessKey:
    """Return the key in a file.

    Raises:
        PrivateFileError: the file does not exist, other users may read it, or it does not contain a key.
    """
    content = read_private(path, hint=_HINT)
    if content is None:
        raise PrivateFileError(f"{str(path)!r} does not exist; {_HINT.recreate}")
    key = _parse_key(content.decode("utf-8", "replace"))
    if key is None:
        # The content is not printed, because it may contain the key.
        raise PrivateFileError(f"{str(path)!r} does not contain the key of a witness; {_HINT.recreate}")
    return key


def _parse_key(content: str) -> WitnessKey | None:
    name, _, rest = content.strip().removeprefix(_PREFIX).partition("+")
    data = decode_base64(rest.partition("+")[2])
    try:
        if data is None or data[:1] != bytes([WITNESS]):
            return None
        key = WitnessKey(name, Ed25519PrivateKey.from_private_bytes(data[1:]))
    except ValueError:
        return None
    return key if key.to_text().strip() == content.strip() else None


def _check_name(name: str) -> None:
    is_long = len(name.encode("utf-8", "surrogatepass")) > _MAX_NAME_BYTES
    if not name or is_long or not name.isprintable() or "+" in name or any(char.isspace() for char in name):
        raise WitnessNameError(
            f"invalid name of a witness {name!r}: use a name such as example.com/witness, without spaces and '+', of at "
            f"most {_MAX_NAME_BYTES} bytes"
        )
