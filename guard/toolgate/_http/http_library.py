"""The one module that knows the HTTP library: `httpx`, or `httpx2` where `TOOLGATE_HTTP` says so.

Redirects are never followed: the API key goes to the configured address only.
"""

from __future__ import annotations

import importlib
import ssl
from collections.abc import Callable
from typing import Any, Final
from urllib.request import getproxies

from toolgate._http.budget import keep_budget, within_budget
from toolgate._http.closing import close_given_up, closing_given_up
from toolgate._http.faults import Faults
from toolgate._http.kept import Kept
from toolgate._http.network import Network
from toolgate._http.roads import AsyncRoad, Building, ByClient, ByKept, ByPool, Road, describe
from toolgate.errors import ConfigurationError

__all__ = ["Library"]

# Idle connections that are kept, and for how long: the library's own numbers. As many are open as turns are taken.
_IDLE: Final = 20
_IDLE_SECONDS: Final = 5.0


class Library:
    """Makes roads for requests, and judges what fails on them.

    Args:
        name: Import name of the HTTP library.
        transport: A transport of it to use in place of the network.
        proxies: Whether the proxies named by the environment are used.
        network: Whom TLS trusts, what it is shown, and a proxy that wins over those.

    Attributes:
        faults: Judges exceptions.
        fault: What is raised where no whole answer came.
        undecodable: What is raised where a body cannot be unpacked.
    """

    def __init__(self, name: str, transport: object | None, *, proxies: bool, network: Network) -> None:
        self._httpx: Any = importlib.import_module(name)
        self._core: Any = importlib.import_module(name.replace("httpx", "httpcore"))
        self._transport = transport
        self._proxies = proxies
        self._network = network
        self._tls: Any = None
        self._building = Building(self._httpx, self._core)
        self.faults = Faults(self._httpx, self._core)
        # TLS may fail after the handshake; the library lets that through as it is.
        self.fault = (self._httpx.RequestError, *_faults_of(self._core), ssl.SSLError)
        self.undecodable: type[Exception] = self._httpx.DecodingError

    def road(self) -> Road:
        """A synchronous road, which keeps to the budget of the thread it serves."""
        if self._is_direct():
            backend = within_budget(self._core.SyncBackend(), self._core)
            return ByKept(self._made("Client", lambda: self._kept(backend)), self._building)
        return self._by_client("Client", keep_budget)

    def async_road(self) -> AsyncRoad:
        """An asynchronous road."""
        if self._is_direct():
            backend = closing_given_up(self._core.AnyIOBackend(), self._core)
            return ByPool(self._made("AsyncClient", lambda: self._pool(backend)), self._building)
        return self._by_client("AsyncClient", close_given_up)

    def _is_direct(self) -> bool:
        """Whether nothing stands between this process and the gateway but the network."""
        if self._transport is not None or self._network.proxy is not None:
            return False
        if not self._proxies:
            return True
        named = getproxies()
        return not any(named.get(scheme) for scheme in ("http", "https", "all"))

    def _kept(self, backend: object) -> Kept:
        context = self._context()

        def connection(origin: Any) -> Any:
            return self._core.HTTPConnection(
                origin, ssl_context=context, keepalive_expiry=_IDLE_SECONDS, network_backend=backend
            )

        return Kept(self._core, connection, _IDLE)

    def _pool(self, backend: object) -> Any:
        return self._core.AsyncConnectionPool(
            ssl_context=self._context(),
            max_connections=None,
            max_keepalive_connections=_IDLE,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=backend,
        )

    def _by_client(self, kind: str, adapt: Callable[[object, Any], None]) -> ByClient:
        client = self._made(kind, lambda: getattr(self._httpx, kind)(**self._options()))
        for transport in (client._transport, *client._mounts.values()):  # noqa: SLF001 - the proxies' pools as well
            adapt(transport, self._core)
        return ByClient(client, self._building, network=self._reaches_out())

    def _reaches_out(self) -> bool:
        networks = (self._httpx.HTTPTransport, self._httpx.AsyncHTTPTransport)
        return self._transport is None or isinstance(self._transport, networks)

    def _made(self, kind: str, make: Callable[[], Any]) -> Any:
        self._fits(kind)
        try:
            return make()
        except (ImportError, OSError, ValueError, self._httpx.InvalidURL) as error:
            # What is said of an address may hold a part of a proxy's password.
            said = describe(error) if isinstance(error, (ImportError, OSError)) else type(error).__name__
            raise ConfigurationError(
                f"the HTTP client cannot be made: {said}; look at HTTPS_PROXY, ALL_PROXY, "
                "SSL_CERT_FILE and SSL_CERT_DIR in the environment"
            ) from None

    def _fits(self, kind: str) -> None:
        base = "BaseTransport" if kind == "Client" else "AsyncBaseTransport"
        if self._transport is not None and not isinstance(self._transport, getattr(self._httpx, base)):
            raise ConfigurationError(
                f"transport is a {type(self._transport).__name__!r} and no {self._httpx.__name__}.{base}, which "
                f"{'synchronous' if kind == 'Client' else 'asynchronous'} calls need; use a class that is both"
            )

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            # Made here, because without trust_env the client would not look at SSL_CERT_FILE either.
            self._tls = self._network.context(self._httpx.create_ssl_context)
        context: ssl.SSLContext = self._tls
        return context

    def _options(self) -> dict[str, Any]:
        if self._transport is not None:
            return {"follow_redirects": False, "trust_env": False, "transport": self._transport}
        return {
            "follow_redirects": False,
            "trust_env": self._proxies and self._network.proxy is None,
            "proxy": self._network.proxy,
            "verify": self._context(),
            "limits": self._httpx.Limits(
                max_connections=None, max_keepalive_connections=_IDLE, keepalive_expiry=_IDLE_SECONDS
            ),
        }


def _faults_of(core: Any) -> tuple[type[Exception], ...]:
    return (
        core.TimeoutException,
        core.NetworkError,
        core.ProtocolError,
        core.ProxyError,
        core.UnsupportedProtocol,
    )
