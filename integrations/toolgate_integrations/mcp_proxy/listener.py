"""HTTP mode of the proxy: it serves clients over the streamable HTTP transport, and validates their access tokens."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import uvicorn
from mcp.server.auth.settings import AuthSettings
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl, ValidationError
from starlette.types import ASGIApp

from toolgate import ConfigurationError
from toolgate_integrations.mcp_proxy.backend import Backend
from toolgate_integrations.mcp_proxy.tokens import JwtVerifier, is_loopback, load_keys

__all__ = ["Listener", "Tokens", "listener_of"]

#: path of the MCP endpoint
PATH: Final = "/mcp"
_ENDS: Final = (signal.SIGTERM, signal.SIGHUP) if hasattr(signal, "SIGHUP") else (signal.SIGTERM,)
_GRACE: Final = 5
_MAX_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class Tokens:
    """Settings of the access tokens that clients must send.

    Attributes:
        verifier: Verifier of the tokens.
        issuer: URL of the issuer.
        audience: The audience that identifies the proxy.
    """

    verifier: JwtVerifier
    issuer: AnyHttpUrl
    audience: str

    @property
    def settings(self) -> AuthSettings:
        """The settings of the MCP SDK; with an audience that is a URL, the proxy publishes its resource metadata."""
        resource = AnyHttpUrl(self.audience) if self.audience.startswith(("https://", "http://")) else None
        return AuthSettings(issuer_url=self.issuer, resource_server_url=resource)


@dataclass(frozen=True, slots=True)
class Listener:
    """Address at which the proxy serves clients.

    Attributes:
        host: Name or IP address of the interface.
        socket: The listening socket.
        tokens: The access tokens that clients must send; None to serve clients without tokens.
    """

    host: str
    socket: socket.socket
    tokens: Tokens | None

    @property
    def url(self) -> str:
        """Address of the MCP endpoint."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.socket.getsockname()[1]}{PATH}"

    @property
    def _security(self) -> TransportSecuritySettings:
        """Protection against web pages that reach the proxy through the user's browser (DNS rebinding).

        Other machines need an access token, which a web page does not have, and use any name of the proxy.
        """
        if not is_loopback(self.host):
            return TransportSecuritySettings(enable_dns_rebinding_protection=False)
        hosts, origins = ["127.0.0.1:*", "localhost:*", "[::1]:*"], list[str]()
        if self.tokens is not None and (public := urlsplit(self.tokens.audience)).netloc:
            # The name that clients of a reverse proxy use.
            hosts.append(public.netloc)
            origins.append(f"{public.scheme}://{public.netloc}")
        return TransportSecuritySettings(
            allowed_hosts=hosts, allowed_origins=[*(f"http://{host}" for host in hosts[:3]), *origins]
        )

    async def run(self, server: Server[Any], backend: Backend) -> None:
        """Serve clients until the process receives a signal or the server behind the proxy ends.

        Args:
            server: The proxy's own server object.
            backend: Connection to the server behind the proxy.
        """
        options: dict[str, Any] = {"streamable_http_path": PATH, "transport_security": self._security}
        if self.tokens is not None:
            options |= {"auth": self.tokens.settings, "token_verifier": self.tokens.verifier}
        http = _HttpServer(_config(server.streamable_http_app(**options)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_on_signal, http)
            tasks.start_soon(_end_with_backend, http, backend)
            print(f"toolgate mcp-proxy listens on {self.url}", flush=True)  # noqa: T201 - the output of the command
            await http.serve(sockets=[self.socket])
            tasks.cancel_scope.cancel()


def listener_of(
    listen: str, token_issuer: str | None, token_audience: str | None, jwks: str | None
) -> Listener:
    """Return the listener for the options of the command, with its socket open.

    Args:
        listen: Host and port, such as `127.0.0.1:8080`.
        token_issuer: Issuer of the access tokens.
        token_audience: Audience of the access tokens.
        jwks: Address or file of the issuer's public keys.

    Raises:
        ConfigurationError: An option is invalid, or the port cannot be opened.
    """
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > _MAX_PORT:
        raise ConfigurationError(f"--listen is {listen!r}; use HOST:PORT, such as 127.0.0.1:8080")
    tokens = _tokens_of(token_issuer, token_audience, jwks)
    if tokens is None and not is_loopback(host):
        raise ConfigurationError(
            f"--listen {listen} is reachable from other machines; add --token-issuer, --token-audience and --jwks, or "
            "listen on 127.0.0.1"
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return Listener(host, socket.create_server((host, int(port)), family=family), tokens)
    except OSError as error:
        raise ConfigurationError(f"the proxy cannot listen on {listen}: {error.strerror or error}") from error


def _tokens_of(issuer: str | None, audience: str | None, jwks: str | None) -> Tokens | None:
    if not issuer and not audience and not jwks:
        return None
    if not issuer or not audience or not jwks:
        raise ConfigurationError("use --token-issuer, --token-audience and --jwks together")
    try:
        tokens = Tokens(JwtVerifier(issuer, audience, load_keys(jwks)), AnyHttpUrl(issuer), audience)
        tokens.settings  # noqa: B018 - validates the URLs
    except ValidationError as error:
        raise ConfigurationError(
            f"--token-issuer {issuer!r} or --token-audience {audience!r} is not a valid URL"
        ) from error
    return tokens


class _HttpServer(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the proxy: uvicorn would end the process with the signal it received."""
        yield


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        ws="none",
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE,
    )


async def _end_with_backend(http: uvicorn.Server, backend: Backend) -> None:
    await backend.ended.wait()
    http.should_exit = True


async def _end_on_signal(http: uvicorn.Server) -> None:
    if os.name == "nt":
        # Windows has no such signals; Ctrl-C ends the proxy.
        return
    with anyio.open_signal_receiver(*_ENDS) as signals:
        async for _ in signals:
            http.should_exit = True
