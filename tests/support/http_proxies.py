"""`toolgate mcp-proxy --listen` as an operator starts it, clients with access tokens, and the issuer of the tokens."""

import json
import select
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from jwt.algorithms import ECAlgorithm
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from support.proxies import PROXIES, Bank

ISSUER = "https://issuer.example.com"
AUDIENCE = "https://mcp.example.com/mcp"
KEY_ID = "key-1"
OPEN_METHODS = ("mcp_server.initialize", "mcp_server.tools/list")


@cache
def signing_key() -> EllipticCurvePrivateKey:
    return generate_private_key(SECP256R1())


def token(key: Any = None, algorithm: str = "ES256", kid: str | None = KEY_ID, **claims: Any) -> str:
    """Return a valid token, with other claims where they are given; None removes a claim."""
    now = int(time.time())
    valid = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "client_id": "assistant", "iat": now}
    claims = {**valid, "exp": now + 300, **claims}
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode(
        {name: value for name, value in claims.items() if value is not None},
        signing_key() if key is None else key,
        algorithm=algorithm,
        headers=headers,
    )


def write_keys(folder: Path, *more: Mapping[str, Any]) -> Path:
    """Write the issuer's public keys to a file."""
    public = json.loads(ECAlgorithm.to_jwk(signing_key().public_key()))
    file = folder / "jwks.json"
    file.write_text(json.dumps({"keys": [{**public, "kid": KEY_ID, "use": "sig", "alg": "ES256"}, *more]}))
    return file


class HttpProxy:
    """A proxy in front of the small server of a bank, which serves clients over HTTP.

    Args:
        bank: The bank.
        arguments: Further arguments of the command.
        mapping: True to check requests by AuthZEN mappings.
        keys: File of the issuer's public keys; None for the standard one.
        tokens: True to require access tokens.
        env: Further environment variables.
    """

    def __init__(
        self,
        bank: Bank,
        *arguments: str,
        mapping: bool = True,
        keys: Path | None = None,
        tokens: bool = True,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.bank = bank
        self._error = (bank.folder / f"http-{time.time_ns()}").open("w+")
        options = ["--listen", "127.0.0.1:0", *arguments]
        if tokens:
            options += ["--token-issuer", ISSUER, "--token-audience", AUDIENCE]
            options += ["--jwks", str(keys or write_keys(bank.folder))]
        if mapping:
            options.append("--authzen-mapping")
        self.process = PROXIES.start(
            "mcp-proxy",
            "--name",
            "bank",
            *options,
            *bank.small,
            env={**bank.env, **(env or {})},
            stderr=self._error.fileno(),
        )
        assert select.select([self.process.stdout], [], [], 60)[0]
        line = self.process.stdout.readline()
        assert "listens on" in line, self.said
        self.url = line.split()[-1]

    @property
    def said(self) -> str:
        """What stands on its standard error."""
        self._error.seek(0)
        return self._error.read()

    def gone(self) -> None:
        """Kill the process, if it has not ended."""
        self.process.kill()
        self.process.wait(30)
        self.process.stdout.close()
        self._error.close()

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def entries(self) -> list[dict[str, Any]]:
        """Stop the process, so that its log entries are sent, and return the entries of the organization."""
        assert self.stop() == 0, self.said
        return self.bank.owner.entries()

    def contexts(self, action: str, status: str = "success") -> list[Any]:
        """Return the arguments of the logged calls of an action."""
        return [
            each["context"] for each in self.entries() if (each["action"], each["status"]) == (action, status)
        ]

    @asynccontextmanager
    async def client(
        self, bearer: str | None = "", mode: str = "legacy", **options: Any
    ) -> AsyncIterator[Client]:
        """A client with a valid token, another one, or none (None)."""
        bearer = token() if bearer == "" else bearer
        headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode, **options) as client,
        ):
            yield client

    def post(
        self, method: str, headers: Mapping[str, str], params: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        """Send one JSON-RPC request without a session."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        accept = {"Accept": "application/json, text/event-stream"}
        return httpx.post(self.url, json=body, headers={**accept, **headers}, timeout=30)


def declared(name: str, mapping: object, **more: Any) -> dict[str, Any]:
    """Return the definition of a tool that declares a mapping."""
    schema = {"type": "object", "properties": {}, "x-authzen-mapping": mapping}
    return {"name": name, "inputSchema": schema, **more}
