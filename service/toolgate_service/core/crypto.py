"""Password hashes, keys derived from the gateway's secret, encryption at rest, and the file that contains the secret.

An embedded gateway stores its secret in the user's configuration folder, separate from the database. While the secret
is replaced (rotated), a second file contains the former secret. Even after a crash during a rotation, all encrypted
values can therefore be decrypted.
"""

import asyncio
import os
import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from platformdirs import user_config_path, user_data_path
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher

from toolgate_service.core.errors import ApiError, StorageError

if TYPE_CHECKING:
    from toolgate_service.core.settings import Settings


_VERSION = b"\x01"
_NONCE = 12


#: signing keys for one purpose; new signatures are made with the first key, and signatures made with any of the keys
#: are accepted
Keys: TypeAlias = tuple[bytes, ...]


class Vault:
    """Encryption of stored secrets, and the keys that are derived from the gateway's secret with HKDF.

    Args:
        secret: Current secret of the gateway, used to sign and to encrypt.
        others: Former and next secrets, used only to decrypt.
        believed: Additional secrets whose signatures are accepted.

    Attributes:
        token_keys: Keys that sign session tokens.
        cursor_keys: Keys that sign pagination cursors.
        form_keys: Keys that sign the forms of the console.
        access_request_keys: Seeds of the Ed25519 keys that sign values of AuthZEN access requests.
        login_key: Key that hashes the IP addresses and e-mail addresses of failed logins.
    """

    def __init__(self, secret: bytes, *others: bytes, believed: Iterable[bytes] = ()) -> None:
        signing = (secret, *believed)
        self.token_keys: Keys = tuple(_derive(one, b"toolgate token signing") for one in signing)
        self.cursor_keys: Keys = tuple(_derive(one, b"toolgate page cursors") for one in signing)
        self.form_keys: Keys = tuple(_derive(one, b"toolgate console forms") for one in signing)
        self.access_request_keys: Keys = tuple(_derive(one, b"toolgate access requests") for one in signing)
        self.login_key = _derive(secret, b"toolgate failed logins")
        self._aead = _sealing(secret)
        self._others = [_sealing(one) for one in others]

    @classmethod
    def of(cls, settings: "Settings") -> Self:
        """Create a vault from the secrets in the settings.

        Raises:
            StorageError: A file that contains a secret cannot be read, or a required secret is not set.
        """
        former, following = settings.former_secrets(), settings.following_secrets()
        believed = following if settings.secret_previous_leaked else (*following, *former)
        return cls(settings.secret_bytes(), *former, *following, believed=believed)

    def seal(self, plain: str, *, table: str, row: str, organization: str) -> bytes:
        """Encrypt a text with AES-256-GCM. It can be decrypted only for the same table, row and organization.

        The first byte of the result is the version of the format.
        """
        nonce = os.urandom(_NONCE)
        sealed = self._aead.encrypt(nonce, plain.encode(), _place(table, row, organization))
        return _VERSION + nonce + sealed

    def open(self, sealed: bytes, *, table: str, row: str, organization: str) -> str | None:
        """Decrypt a value that `seal` encrypted.

        The result is None if the value was encrypted with an unknown secret, or for another table, row or organization,
        or if its format is unknown.
        """
        place = _place(table, row, organization)
        opened = (_opened(aead, sealed, place) for aead in (self._aead, *self._others))
        return next((plain for plain in opened if plain is not None), None)

    def resealed(self, sealed: bytes, *, table: str, row: str, organization: str) -> bytes | None:
        """Return `sealed` if the current secret encrypted it; otherwise encrypt its content with the current secret.

        The result is None if no known secret decrypts the value.
        """
        if _opened(self._aead, sealed, _place(table, row, organization)) is not None:
            return sealed
        plain = self.open(sealed, table=table, row=row, organization=organization)
        return None if plain is None else self.seal(plain, table=table, row=row, organization=organization)


def _sealing(secret: bytes) -> AESGCM:
    return AESGCM(_derive(secret, b"toolgate secrets at rest"))


def _opened(aead: AESGCM, sealed: bytes, place: bytes) -> str | None:
    if sealed[:1] != _VERSION or len(sealed) <= len(_VERSION) + _NONCE:
        return None
    nonce, body = sealed[1 : 1 + _NONCE], sealed[1 + _NONCE :]
    try:
        return aead.decrypt(nonce, body, place).decode()
    except InvalidTag:
        return None


def _place(table: str, row: str, organization: str) -> bytes:
    return f"{table}/{row}/{organization}".encode()


def _derive(secret: bytes, label: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=label).derive(secret)


#: minimum number of characters of a secret; a shorter secret could be guessed
MIN_SECRET = 16


def secret_path() -> Path:
    """Return the path of the file that contains the secret of an embedded gateway."""
    folder = user_config_path("toolgate", appauthor=False)
    # On macOS and Windows, the configuration folder is also the data folder. Use another folder there, because a backup
    # of the data must not contain the secret.
    if folder == user_data_path("toolgate", appauthor=False):
        folder = Path.home() / ".config" / "toolgate"
    return folder / "secret"


def stored_secret(path: Path) -> bytes:
    """Return the secret in a file. If the file does not exist, create it with a new secret.

    Raises:
        StorageError: The file cannot be read or created, or the secret is too short.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            # Write a temporary file and link it to the final name. If two gateways start for the first time at once,
            # only one of the links succeeds, so both gateways use the same secret.
            draft = _draft(path, new_secret())
            try:
                path.hardlink_to(draft)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        secret = path.read_bytes().strip()
    except OSError as error:
        raise _secret_file_error(path, error) from error
    if len(secret) < MIN_SECRET:
        raise StorageError(
            f"the secret in {str(path)!r} has fewer than {MIN_SECRET} characters; restore the file, or delete it to let the gateway create a new secret"
        )
    return secret


def former_secret(path: Path) -> bytes | None:
    """Return the former secret if a rotation of the secret is in progress, otherwise None.

    Raises:
        StorageError: The file of the former secret cannot be read.
    """
    try:
        return _former(path).read_bytes().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _secret_file_error(_former(path), error) from error


def begin_rotation(path: Path) -> bool:
    """Save the current secret as the former secret, and replace it with a new one. Return True if this was done.

    If an earlier rotation is still in progress, its former secret is still needed. The function then changes nothing
    and returns False.

    Raises:
        StorageError: The files cannot be written; the secret is unchanged.
    """
    present = stored_secret(path)
    try:
        # If the former secret equals the present one, an earlier rotation stopped between the two writes below. Both
        # writes can then be repeated.
        if former_secret(path) not in {None, present}:
            return False
        # Save the present secret as the former one before a new secret replaces it, so that a crash between the two
        # writes does not lose the secret.
        _replace(_former(path), present)
        _replace(path, new_secret())
    except OSError as error:
        raise _secret_file_error(path, error) from error
    return True


def finish_rotation(path: Path) -> None:
    """Delete the file that contains the former secret.

    Raises:
        StorageError: The file cannot be deleted.
    """
    try:
        _former(path).unlink(missing_ok=True)
        _sync_folder(path.parent)
    except OSError as error:
        raise _secret_file_error(_former(path), error) from error


def new_secret() -> bytes:
    """Return a new random secret: 384 bits in URL-safe base64."""
    return secrets.token_urlsafe(48).encode()


def _former(path: Path) -> Path:
    return path.with_name(f"{path.name}.previous")


def _draft(path: Path, secret: bytes) -> Path:
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret)
        file.flush()
        # Write the secret to disk before its first use: if a power failure lost the secret, nothing could decrypt the
        # values that were encrypted with it.
        os.fsync(file.fileno())
    return draft


def _replace(path: Path, secret: bytes) -> None:
    _draft(path, secret).replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    # A new file name survives a power failure only after its folder was synced to disk. Windows cannot open folders,
    # and needs no such sync.
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _secret_file_error(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"cannot store the gateway's secret in {str(path)!r}: {error.strerror}; set TOOLGATE_SECRET to at least "
        f"{MIN_SECRET} random characters"
    )


T = TypeVar("T")

#: seconds after which the client should retry after a 429 response, sent in the header `Retry-After`
RETRY_AFTER = 2


class Passwords:
    """Thread pool that hashes and verifies passwords. One hash takes about 0.1 seconds and 64 MiB of memory."""

    def __init__(self, threads: int, queue: int) -> None:
        self._hasher = PasswordHash((Argon2Hasher(),))
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="argon2")
        self._places = threads + queue
        self._decoy: str | None = None

    async def hash(self, password: str) -> str:
        """Return the Argon2id hash of a password.

        Raises:
            ApiError: 429, too many other requests are waiting for a password to be hashed.
        """
        return await self._run(lambda: self._hasher.hash(password))

    async def verify(self, password: str, stored: str | None) -> bool:
        """Return whether a password matches a stored hash.

        If `stored` is None, the result is False, and the call takes as long as with a stored hash. The duration
        therefore does not reveal whether a user exists.

        Raises:
            ApiError: 429, too many other requests are waiting for a password to be hashed.
        """
        if self._decoy is None:
            self._decoy = await self.hash("password of no user")
        candidate = stored or self._decoy
        fits = await self._run(lambda: self._hasher.verify(password, candidate))
        return fits and stored is not None

    def close(self) -> None:
        """Cancel waiting hash operations, and stop the threads without waiting for them."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], T]) -> T:
        if self._places <= 0:
            raise ApiError(
                429,
                f"Too many logins at the same time; retry after {RETRY_AFTER} seconds",
                {"Retry-After": str(RETRY_AFTER)},
            )
        self._places -= 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._places += 1
