"""Archive with its manifest: a ZIP file whose bytes depend only on its content."""

import shutil
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Final

from toolgate_cli.output import to_ascii_json

MANIFEST: Final = "manifest.json"
CHECKSUMS: Final = "SHA256SUMS"
FORMAT: Final = "toolgate.evidence/v1"

#: earliest time that a ZIP file can contain; all files have it, so that equal content makes equal bytes
_TIME: Final = (1980, 1, 1, 0, 0, 0)
#: permissions of an extracted file: only its owner may read and write it
_MODE: Final = 0o600 << 16
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """File of the archive.

    Attributes:
        name: path in the archive.
        purpose: what the file contains, one sentence.
        content: the content, or the path of a file that contains it.
    """

    name: str
    purpose: str
    content: bytes | Path

    @property
    def size(self) -> int:
        """Number of bytes."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size

    def digest(self) -> str:
        """Return the SHA-256 digest of the content in hexadecimal."""
        digest = sha256()
        with self.open() as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()

    def open(self) -> BinaryIO:
        """Open the content for reading."""
        return BytesIO(self.content) if isinstance(self.content, bytes) else self.content.open("rb")


def json_entry(name: str, purpose: str, value: Any) -> Entry:
    """Return a file with one JSON value, in ASCII."""
    return Entry(name, purpose, f"{to_ascii_json(value)}\n".encode())


def lines_entry(name: str, purpose: str, values: Iterable[Any]) -> Entry:
    """Return a file with one JSON value on each line, in ASCII."""
    return Entry(name, purpose, "".join(f"{to_ascii_json(value)}\n" for value in values).encode())


def text_entry(name: str, purpose: str, text: str) -> Entry:
    """Return a file with text, which ends with a line break."""
    return Entry(name, purpose, f"{text.rstrip()}\n".encode())


def write_archive(file: BinaryIO, entries: Sequence[Entry], about: dict[str, Any]) -> None:
    """Write the archive: the entries in the order of their names, the manifest, and the list of checksums.

    Args:
        file: the file to write.
        entries: the files of the archive; their names are unique.
        about: further members of the manifest, such as the period.

    Raises:
        OSError: a file cannot be read or written.
    """
    ordered = sorted(entries, key=lambda one: one.name)
    digests = {one.name: one.digest() for one in ordered}
    listed = [
        {"name": one.name, "purpose": one.purpose, "size": one.size, "sha256": digests[one.name]}
        for one in ordered
    ]
    manifest = json_entry(
        MANIFEST, "All files with their SHA-256 digests.", {"format": FORMAT, **about, "files": listed}
    )
    digests[MANIFEST] = manifest.digest()
    # The format of `sha256sum`, which is available on every machine of an auditor.
    sums = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    checksums = text_entry(CHECKSUMS, "Digests for 'sha256sum --check'.", sums)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for one in sorted([*ordered, manifest, checksums], key=lambda each: each.name):
            info = zipfile.ZipInfo(one.name, _TIME)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, _MODE
            info.create_system = 3
            with one.open() as source, archive.open(info, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target, _CHUNK)
