"""TLS of the gateway's own port: reads certificate and key from files, and reads them again when the files change."""

import logging
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from toolgate_service.core.errors import StartError
from toolgate_service.core.settings import Settings

logger = logging.getLogger("toolgate.gateway")

_CERT, _KEY = "TOOLGATE_TLS_CERT", "TOOLGATE_TLS_KEY"


class Certificates:
    """Certificate and private key of the server.

    Args:
        certificate: PEM file with the certificate, followed by the intermediate certificates.
        key: PEM file with the private key, which must not be encrypted.

    Attributes:
        context: TLS context for new connections.

    Raises:
        StartError: A file cannot be used, or the private key does not belong to the certificate.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._versions = self._file_versions()
        self.context = self._newest = self._load()
        # OpenSSL calls this callback for every new connection, even if the client sends no server name (SNI). New
        # connections therefore use the newest certificate.
        self.context.sni_callback = self._use_newest

    def reload_if_changed(self) -> None:
        """Read the certificate and key files again if they have changed.

        If they cannot be used, keep the old certificate and key, and log the error.
        """
        versions = self._file_versions()
        if versions == self._versions:
            return
        # Store the versions (modification time, inode and size) of the files before the files are read, so that an
        # error of unusable files is logged only once. If the key is written after the certificate, the versions change
        # again, and the next call reads the files again.
        self._versions = versions
        try:
            self._newest = self._load()
        except StartError as error:
            logger.error("the TLS certificate could not be reloaded, the former one is still used: %s", error)  # noqa: TRY400 - the operator's configuration is wrong, so a traceback does not help
        else:
            logger.info("the TLS certificate was reloaded")

    def _use_newest(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._newest

    def _load(self) -> ssl.SSLContext:
        read_certificate(*self._files)
        # Create a new context: in the old context, `load_cert_chain` would replace the certificate before it validates
        # the files.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError) as error:
            raise StartError(f"{_CERT}: the certificate cannot be used: {error.strerror or error}") from None
        return context

    def _file_versions(self) -> list[tuple[int, int, int] | None]:
        return [_file_version(file) for file in self._files]


def load_certificates(settings: Settings) -> Certificates | None:
    """Return the certificate of the settings; None if TLS is disabled.

    Raises:
        StartError: A file cannot be used, or the private key does not belong to the certificate.
    """
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificates(settings.tls_cert, settings.tls_key)


def read_certificate(certificate: Path, key: Path) -> x509.Certificate:
    """Return the first certificate of a file.

    Raises:
        StartError: A file cannot be used, or the private key does not belong to the certificate. The error message
            contains no part of the key.
    """
    try:
        found = x509.load_pem_x509_certificates(_read(_CERT, certificate))[0]
    except ValueError:
        raise StartError(
            f"{_CERT}: {str(certificate)!r} contains no certificate; name a PEM file, which begins with -----BEGIN CERTIFICATE-----"
        ) from None
    try:
        public = found.public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise StartError(
            f"{_CERT}: the certificate in {str(certificate)!r} has a key of an unsupported type; use a certificate "
            "with an RSA, ECDSA or Ed25519 key"
        ) from None
    text = _read(_KEY, key)
    try:
        private = load_pem_private_key(text, None)
    except TypeError:
        raise StartError(
            f"{_KEY}: the private key in {str(key)!r} is encrypted; store the key without a passphrase"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise StartError(
            f"{_KEY}: {str(key)!r} contains no private key; name a PEM file, which begins with -----BEGIN PRIVATE KEY-----"
        ) from None
    if private.public_key() != public:
        raise StartError(
            f"{_KEY}: the key in {str(key)!r} does not belong to the first certificate in {str(certificate)!r}; name "
            "the key of the server's certificate, and put this certificate first in its file"
        )
    return found


def _read(setting: str, file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise StartError(
            f"{setting}: cannot read {str(file)!r}: {error.strerror}; name a file that the gateway is permitted to read"
        ) from None


def _file_version(file: Path) -> tuple[int, int, int] | None:
    try:
        # `stat` follows symbolic links, so the result changes if a link gets another target. Kubernetes and certbot
        # update a certificate in this way.
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
