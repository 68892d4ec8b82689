"""The management surface, as commands use it: JSON over the SDK's own HTTP module."""

import json
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from toolgate.settings import proxies_allowed
from toolgate.wire._http import Request, TransportFault, Wire

#: seconds a management request may take
DEADLINE = 15.0


class ManagementError(Exception):
    """The gateway refused or did not answer; the message is one line, for the user."""


class Management:
    """One user's conversation with a gateway."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._wire = Wire("httpx", None, time.monotonic, proxies=proxies_allowed(self._url))

    @classmethod
    def login(cls, url: str, email: str, password: str) -> "Management":
        """Begin a conversation with a fresh login.

        Raises:
            ManagementError: the gateway refused.
        """
        anonymous = cls(url)
        answer = anonymous.post("/auth/login", {"email": email, "password": password})
        anonymous.close()
        return cls(url, answer["access_token"])

    def get(self, path: str, **query: str | int) -> Any:
        """Read something.

        Raises:
            ManagementError: the gateway refused or did not answer.
        """
        return self._send("GET", f"{path}?{urlencode(query)}" if query else path, None)

    def post(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Change something.

        Raises:
            ManagementError: the gateway refused or did not answer.
        """
        return self._send("POST", path, json.dumps(body or {}).encode())

    def close(self) -> None:
        """Hang up."""
        self._wire.close()

    def _send(self, method: str, path: str, body: bytes | None) -> Any:
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            answer = self._wire.send(Request(method, self._url + path, headers, body), DEADLINE)
        except TransportFault as error:
            raise ManagementError(f"the gateway at {self._url!r} does not answer: {error}") from error
        try:
            content = json.loads(answer.body) if answer.body else None
        except ValueError:
            raise ManagementError(
                f"{self._url!r} answered {method} {path!r} with something else than JSON"
            ) from None
        if answer.status >= HTTPStatus.BAD_REQUEST:
            detail = content.get("detail") if isinstance(content, dict) else content
            raise ManagementError(f"the gateway refused {method} {path!r} with {answer.status}: {detail}")
        return content
