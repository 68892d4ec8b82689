"""Network settings of a `Guard`: trusted certificates, client certificate and proxy. `Guard()` validates them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

from toolgate.errors import ConfigurationError

if TYPE_CHECKING:
    # At run time, only the functions that need `ssl` import it, so that decorating a function does not load it.
    import ssl

__all__ = ["DEFAULT_NETWORK", "ClientCert", "Network", "load_network"]

ClientCert: TypeAlias = "tuple[str | os.PathLike[str], ...]"
_PARTS: Final = (2, 3)


@dataclass(frozen=True, slots=True)
class Network:
    """Network settings.

    Attributes:
        ca: File of certificates to trust instead of the system's, or an SSL context, which is used without changes.
        client_cert: Paths of the client certificate and of its key, and the password of the key (empty if none).
        proxy: Address of a proxy; excluded from `repr`, because it may contain a password.
    """

    ca: str | ssl.SSLContext | None = None
    client_cert: tuple[str, str, str] | None = field(default=None, repr=False)
    proxy: str | None = field(default=None, repr=False)

    def context(self, url: str, create_default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        """Return the SSL context for connections to `url`.

        Args:
            url: Address of the gateway.
            create_default: Function that returns an SSL context with the HTTP library's own trusted certificates.

        Raises:
            ConfigurationError: If a file of certificates or keys cannot be used.
        """
        if not url.startswith("https:"):
            import ssl

            # Connections without TLS need no certificates, and reading the system's certificates would take 50 ms.
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.ca is not None and not isinstance(self.ca, str):
            return self.ca
        context = create_default() if self.ca is None else _trust(self.ca)
        if self.client_cert is not None:
            _load_client_cert(context, *self.client_cert)
        return context


DEFAULT_NETWORK: Final = Network()


def load_network(
    url: str,
    ca: str | os.PathLike[str] | ssl.SSLContext | None = None,
    client_cert: ClientCert | None = None,
    proxy: str | None = None,
    *,
    transport: object | None = None,
) -> Network:
    """Return validated network settings. Settings that are not passed as arguments are read from the environment.

    The variables are `TOOLGATE_CA_FILE`, `TOOLGATE_CLIENT_CERT`, `TOOLGATE_CLIENT_KEY`, `TOOLGATE_CLIENT_KEY_PASSWORD`
    and `TOOLGATE_PROXY`.

    Raises:
        ConfigurationError: If a value is invalid; the message contains the argument, variable or file, and the fix.
    """
    if transport is not None:
        # The application passed a transport that replaces the network: network settings would have no effect.
        for name, given in (("ca", ca), ("client_cert", client_cert), ("proxy", proxy)):
            if given is not None:
                raise ConfigurationError(
                    f"{name} has no effect together with transport=; configure it in the transport object instead"
                )
        return DEFAULT_NETWORK
    network = Network(_ca(ca), _client_cert(client_cert), _proxy(proxy, url))
    if network.ca is not None or network.client_cert is not None:
        import ssl

        if isinstance(network.ca, ssl.SSLContext) and network.client_cert is not None:
            raise ConfigurationError(
                "ca is an SSLContext and client_cert is set; load the certificate into the context instead"
            )
        # The files are read here, so that an invalid file raises an error now and not in the first call.
        network.context("https:", lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    return network


def _ca(given: object) -> str | ssl.SSLContext | None:
    if given is None:
        return os.environ.get("TOOLGATE_CA_FILE") or None
    import ssl

    if isinstance(given, ssl.SSLContext):
        if given.verify_mode is not ssl.CERT_REQUIRED or not given.check_hostname:
            raise ConfigurationError(
                "ca is an SSLContext that does not verify certificate and host name; "
                "another server could impersonate the gateway; set verify_mode and check_hostname"
            )
        return given
    return _path(given, "ca")


def _client_cert(given: object) -> tuple[str, str, str] | None:
    if given is None:
        names = ("TOOLGATE_CLIENT_CERT", "TOOLGATE_CLIENT_KEY")
        certificate, key = (os.environ.get(name, "") for name in names)
        if not certificate and not key:
            return None
        if not certificate or not key:
            missing = names[1] if certificate else names[0]
            raise ConfigurationError(
                f"{missing} is not set; set both {' and '.join(names)}, or neither of them"
            )
        return certificate, key, os.environ.get("TOOLGATE_CLIENT_KEY_PASSWORD", "")
    if not isinstance(given, tuple) or len(given) not in _PARTS:
        # The message does not contain the value, which may contain a password.
        raise ConfigurationError(
            "client_cert must be a tuple; pass (certificate file, key file) or (certificate file, key "
            "file, password)"
        )
    password = given[2] if len(given) == max(_PARTS) else ""
    if not isinstance(password, str):
        raise ConfigurationError(
            "the password in client_cert is not a str; pass (certificate, key, password)"
        )
    return _path(given[0], "client_cert"), _path(given[1], "client_cert"), password


def _proxy(given: object, url: str) -> str | None:
    proxy = given if given is not None else os.environ.get("TOOLGATE_PROXY") or None
    if proxy is None:
        return None
    wrong = ConfigurationError(
        # The message does not contain the value, which may contain a password.
        "proxy is not the address of a proxy; pass Guard(proxy=…) or set TOOLGATE_PROXY to a form like "
        "'http://proxy.example.com:3128', with user:password@ before the host if the proxy requires a login"
    )
    if not isinstance(proxy, str) or not all("!" <= char <= "~" for char in proxy):
        raise wrong
    try:
        parts = urlsplit(proxy)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme != "http" or not host or parts.path.strip("/") or parts.query or parts.fragment:
        raise wrong
    if urlsplit(url).scheme != "https":
        raise ConfigurationError(
            f"a proxy is set, but url {url!r} is plain http, so the proxy could read the API key and answer in the "
            "gateway's place; use https, or remove proxy= and TOOLGATE_PROXY"
        )
    return proxy


def _path(given: object, name: str) -> str:
    if not isinstance(given, (str, os.PathLike)):
        raise ConfigurationError(f"{name} is a {type(given).__name__}; pass the path of a file")
    return str(Path(given))


def _trust(path: str) -> ssl.SSLContext:
    import ssl

    _readable(path, "ca", "TOOLGATE_CA_FILE")
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        raise ConfigurationError(
            f"ca file {path!r} contains no readable certificates ({_reason(error)}); "
            "it must be a PEM file with one '-----BEGIN CERTIFICATE-----' or more"
        ) from None


def _load_client_cert(context: ssl.SSLContext, certificate: str, key: str, password: str) -> None:
    _readable(certificate, "client certificate", "TOOLGATE_CLIENT_CERT")
    _readable(key, "client key", "TOOLGATE_CLIENT_KEY")
    try:
        # The password is passed even if it is empty. With None, OpenSSL would ask for a password on the terminal.
        context.load_cert_chain(certificate, key, password)
    except OSError as error:
        raise ConfigurationError(
            f"client certificate {certificate!r} and key {key!r} cannot be used ({_reason(error)}); both "
            "must be PEM "
            "files, the key must belong to the certificate, and if the key is encrypted, its password must be set"
        ) from None


def _readable(path: str, what: str, variable: str) -> None:
    try:
        with Path(path).open("rb"):
            return
    except OSError as error:
        raise ConfigurationError(
            f"{what} file {path!r} cannot be read: {error.strerror}; check the path and the file's "
            f"permissions, or {variable}"
        ) from None


def _reason(error: OSError) -> str:
    reason = getattr(error, "reason", None)
    return str(reason or error.strerror or type(error).__name__)
