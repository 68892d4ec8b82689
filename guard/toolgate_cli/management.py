"""The management surface, as commands use it: JSON over the SDK's own HTTP module."""

import re
from collections.abc import Generator, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Literal, Self
from urllib.parse import unquote, urlencode

from toolgate._capture.jsontext import dumps
from toolgate._http.messages import Request, Response, TransportError
from toolgate._http.transport import HttpSender
from toolgate.errors import ConfigurationError
from toolgate_cli.answers import ManagementError, read_answer
from toolgate_cli.patience import Patience
from toolgate_cli.visible import visible

#: seconds a management request may take, and each piece of an answer that comes in pieces
DEADLINE = 15.0

#: the most that a page of a list holds (decisions §2)
PAGE = 100

Query = Mapping[str, str | int | None]

_LONGEST_REFUSAL = 64 * 1024
_CURSOR = re.compile(r'[?&]cursor=([^&>]+)[^>]*>; rel="next"')
_NOTHING: Query = {}


class Management:
    """One user's conversation with a gateway. Asked too often, it waits for a while as it is told.

    Attributes:
        url: where it is.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._token = token
        self._wire = HttpSender(self.url)
        self._patience = Patience()

    def __repr__(self) -> str:
        return f"Management({self.url!r})"

    @classmethod
    def login(
        cls, url: str, email: str, password: str, scope: Literal["full", "cli"] = "full"
    ) -> "Management":
        """Begin a conversation with a fresh login.

        Raises:
            ManagementError: the gateway refused.
        """
        return cls(url, issue_token(url, email, password, scope))

    def get(self, path: str, query: Query = _NOTHING) -> Any:
        """Read something.

        Args:
            path: where it is.
            query: what is None is left out.

        Raises:
            ManagementError: the gateway refused or did not answer.
        """
        return read_answer(self._send("GET", _with_query(path, query), None), "GET", path)

    def pages(self, path: str, query: Query = _NOTHING) -> Iterator[list[Any]]:
        """Read a list page by page.

        Raises:
            ManagementError: the gateway refused, did not answer, or answered with no list.
        """
        cursor: str | None = None
        while True:
            asked = {**query, "limit": PAGE, "cursor": cursor}
            answer = self._send("GET", _with_query(path, asked), None)
            page = read_answer(answer, "GET", path)
            if not isinstance(page, list):
                raise ManagementError(f"the gateway answered GET {path!r} with something else than a list")
            yield page
            found = _CURSOR.search(answer.headers.get("link", ""))
            if found is None:
                return
            cursor = unquote(found.group(1))

    def total(self, path: str, query: Query = _NOTHING) -> int | None:
        """Return how long a list is, or None where the gateway does not count so far.

        Raises:
            ManagementError: the gateway refused or did not answer.
        """
        answer = self._send("GET", _with_query(path, {**query, "limit": 1}), None)
        read_answer(answer, "GET", path)
        counted = answer.headers.get("x-total-count", "")
        return int(counted) if counted.isascii() and counted.isdigit() else None

    def pieces(self, path: str, query: Query = _NOTHING) -> Generator[bytes]:
        """Read an answer of any length, piece by piece.

        Raises:
            ManagementError: the gateway refused, did not answer, or broke off.
        """
        request = self._request("GET", _with_query(path, query), None)
        try:
            while True:
                with self._wire.stream(request, DEADLINE) as (answer, pieces):
                    if answer.status == HTTPStatus.OK:
                        yield from pieces
                        return
                    refusal = Response(answer.status, answer.headers, _beginning(pieces))
                if not self._patience.waited(refusal):
                    read_answer(refusal, "GET", path)
                    raise ManagementError(f"the gateway answered GET {path!r} with {refusal.status}")
        except (TransportError, ConfigurationError) as error:
            raise self._unanswered(error, "GET") from error

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Change something; numbers in the body keep their digits.

        Raises:
            ManagementError: the gateway refused or did not answer.
        """
        return self._change("POST", path, body)

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """Change what a thing says; what is not in the body stays.

        Raises:
            ManagementError: the gateway refused or did not answer.
        """
        return self._change("PUT", path, body)

    def delete(self, path: str) -> None:
        """Remove something.

        Raises:
            ManagementError: the gateway refused or did not answer.
        """
        read_answer(self._send("DELETE", path, None), "DELETE", path)

    def log_out(self) -> None:
        """End the login at the gateway.

        Raises:
            ManagementError: the gateway refused or did not answer.
        """
        self.post("/auth/logout")

    def close(self) -> None:
        """Hang up."""
        self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _change(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        sent = dumps(dict(body or {})).encode("utf-8", "surrogatepass")
        return read_answer(self._send(method, path, sent), method, path)

    def _send(self, method: str, path: str, body: bytes | None) -> Response:
        request = self._request(method, path, body)
        try:
            while True:
                answer = self._wire.send(request, DEADLINE)
                if not self._patience.waited(answer):
                    return answer
        except (TransportError, ConfigurationError) as error:
            raise self._unanswered(error, method) from error

    def _request(self, method: str, path: str, body: bytes | None) -> Request:
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        return Request(method, self.url + path, headers, body)

    def _unanswered(self, error: Exception, method: str) -> ManagementError:
        if isinstance(error, ConfigurationError):
            return ManagementError(visible(error))
        why = visible(error)
        return ManagementError(
            f"the gateway at {self.url!r} does not answer: {why}", unanswered=True, changing=method != "GET"
        )


def issue_token(url: str, email: str, password: str, scope: Literal["full", "cli"]) -> str:
    """Exchange e-mail and password for a token.

    Raises:
        ManagementError: the gateway refused, or what answered is no gateway.
    """
    with Management(url) as anonymous:
        answer = anonymous.post("/auth/login", {"email": email, "password": password, "scope": scope})
    token = answer.get("access_token") if isinstance(answer, dict) else None
    # What goes into a header later must be fit for one.
    if not isinstance(token, str) or not token or not all("!" <= char <= "~" for char in token):
        raise ManagementError(f"what answers at {url!r} is no Toolgate gateway: its login has no token")
    return token


def _beginning(pieces: Iterator[bytes]) -> bytes:
    # A refusal is short; what is not is none of the gateway's.
    read = b""
    for piece in pieces:
        read += piece
        if len(read) > _LONGEST_REFUSAL:
            break
    return read


def _with_query(path: str, query: Query) -> str:
    said = {name: value for name, value in query.items() if value is not None}
    # What a shell handed over that is no text matches nothing.
    return f"{path}?{urlencode(said, errors='replace')}" if said else path
