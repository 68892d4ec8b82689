"""TLS without a proxy: a certificate and its key from files, taken anew when they change."""

import logging
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from toolgate_service.errors import StartError

logger = logging.getLogger("toolgate.gateway")

_CERT, _KEY = "TOOLGATE_TLS_CERT", "TOOLGATE_TLS_KEY"


class Certificates:
    """What connections are encrypted with.

    Args:
        certificate: the file of the certificate, and behind it those of its issuers, in PEM.
        key: the file of its private key, in PEM and not encrypted.

    Attributes:
        context: what the server's side of a new connection is made of.

    Raises:
        StartError: one of the files cannot be used, or they do not belong together.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._marks = self._marked()
        self.context = self._newest = self._loaded()
        self.context.sni_callback = self._show_newest

    def look(self) -> None:
        """Take the files anew if they have changed; what cannot be used is logged, and the former ones stay."""
        marks = self._marked()
        if marks == self._marks:
            return
        # Remembered at once: what cannot be used is said once. A key that comes after its certificate changes them again.
        self._marks = marks
        try:
            self._newest = self._loaded()
        except StartError as error:
            logger.error("the former TLS certificate stays: %s", error)  # noqa: TRY400 - the operator's to mend
        else:
            logger.info("the TLS certificate was taken anew")

    def _show_newest(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Have a connection that begins be shown what was taken last; it is asked whether it names a host or not."""
        connection.context = self._newest

    def _loaded(self) -> ssl.SSLContext:
        fitting(*self._files)
        # One of its own: a context that refuses the chain has put the new certificate in the place of the former already.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError) as error:
            raise StartError(f"{_CERT}: cannot be used: {error.strerror or error}") from None
        return context

    def _marked(self) -> list[tuple[int, int, int] | None]:
        return [_mark(file) for file in self._files]


def fitting(certificate: Path, key: Path) -> x509.Certificate:
    """Return the first certificate of a file.

    Raises:
        StartError: one of the files cannot be used, or they do not belong together; nothing of the key is repeated.
    """
    try:
        found = x509.load_pem_x509_certificates(_read(_CERT, certificate))[0]
    except ValueError:
        raise StartError(
            f"{_CERT}: {str(certificate)!r} holds no certificate; name a file in PEM, -----BEGIN CERTIFICATE-----"
        ) from None
    try:
        public = found.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise StartError(
            f"{_CERT}: the certificate in {str(certificate)!r} has a key of a kind that is not known here; use RSA, ECDSA "
            "or Ed25519"
        ) from None
    text = _read(_KEY, key)
    try:
        private = load_pem_private_key(text, None)
    except TypeError:
        raise StartError(f"{_KEY}: {str(key)!r} is encrypted; write the key without a passphrase") from None
    except (ValueError, UnsupportedAlgorithm):
        raise StartError(
            f"{_KEY}: {str(key)!r} holds no private key; name a file in PEM, -----BEGIN PRIVATE KEY-----"
        ) from None
    if private.public_key() != public:
        raise StartError(
            f"{_KEY}: {str(key)!r} is not the key of the certificate in {str(certificate)!r}; name the two that were "
            "made together, the server's own certificate first in its file"
        )
    return found


def _read(setting: str, file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise StartError(
            f"{setting}: cannot read {str(file)!r}: {error.strerror}; name a file that the gateway may read"
        ) from None


def _mark(file: Path) -> tuple[int, int, int] | None:
    try:
        # By the link: Kubernetes and certbot turn one around.
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
