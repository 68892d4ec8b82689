"""The secret of an embedded gateway: a file in the user's configuration folder, not beside the data (decisions §9).

During a rotation the former secret lies beside it, so that whatever moment the machine fails at, everything that was
sealed can be opened.
"""

import os
import secrets
from pathlib import Path

from platformdirs import user_config_path, user_data_path

from toolgate_service.errors import StorageError

#: shorter secrets could be guessed
MIN_SECRET = 16


def secret_path() -> Path:
    """Return where the secret is kept."""
    folder = user_config_path("toolgate", appauthor=False)
    # macOS and Windows have one folder for both, and whoever copies the data must not copy the secret along.
    if folder == user_data_path("toolgate", appauthor=False):
        folder = Path.home() / ".config" / "toolgate"
    return folder / "secret"


def stored_secret(path: Path) -> bytes:
    """Return the secret of a file, made if there is none.

    Raises:
        StorageError: it can be neither read nor made, or is too short.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            # Written beside and linked into place, so that two first starts agree on one secret.
            draft = _draft(path, new_secret())
            try:
                path.hardlink_to(draft)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        secret = path.read_bytes().strip()
    except OSError as error:
        raise _cannot_keep(path, error) from error
    if len(secret) < MIN_SECRET:
        raise StorageError(
            f"the secret in {str(path)!r} is too short; remove the file to have a new one made"
        )
    return secret


def former_secret(path: Path) -> bytes | None:
    """Return the secret before the file's, while a rotation is not finished.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        return _former(path).read_bytes().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _cannot_keep(_former(path), error) from error


def begin_rotation(path: Path) -> bool:
    """Put a new secret into the file's place and the former beside it; say whether that was done just now.

    A rotation that is not finished is left as it is: its former secret is needed.

    Raises:
        StorageError: the files cannot be written; the secret is what it was.
    """
    present = stored_secret(path)
    try:
        # The same in both: a rotation that stopped between the two steps below.
        if former_secret(path) not in {None, present}:
            return False
        # First the copy of the old, on disk, then the new: at no moment is the old one nowhere.
        _replace(_former(path), present)
        _replace(path, new_secret())
    except OSError as error:
        raise _cannot_keep(path, error) from error
    return True


def finish_rotation(path: Path) -> None:
    """Forget the former secret.

    Raises:
        StorageError: its file cannot be removed.
    """
    try:
        _former(path).unlink(missing_ok=True)
        _sync_folder(path.parent)
    except OSError as error:
        raise _cannot_keep(_former(path), error) from error


def new_secret() -> bytes:
    """Return 384 random bits as text."""
    return secrets.token_urlsafe(48).encode()


def _former(path: Path) -> Path:
    return path.with_name(f"{path.name}.previous")


def _draft(path: Path, secret: bytes) -> Path:
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret)
        file.flush()
        # On disk before anything is sealed with it: after a power cut the keys could not be shown again.
        os.fsync(file.fileno())
    return draft


def _replace(path: Path, secret: bytes) -> None:
    _draft(path, secret).replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    # Windows opens no folders, and keeps their entries by itself.
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _cannot_keep(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"cannot keep the gateway's secret in {str(path)!r}: {error.strerror}; set TOOLGATE_SECRET to at least "
        f"{MIN_SECRET} random characters"
    )
