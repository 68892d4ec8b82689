"""The management surface, as commands use it: JSON over the SDK's own HTTP module."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Literal, NoReturn, Self
from urllib.parse import unquote, urlencode

from toolgate.capture.jsontext import dumps, read_decimal
from toolgate.cli.visible import visible
from toolgate.errors import ConfigurationError
from toolgate.settings import proxies_allowed
from toolgate.wire._http import Answer, Request, TransportFault, Wire

#: seconds a management request may take
DEADLINE = 15.0

#: the most that a page of a list holds (decisions §2)
PAGE = 100

#: of something in front of the gateway, of a gateway that is just starting or stopping, or that is asked too often
_PASSING = frozenset({
    HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT,
})  # fmt: skip
_CURSOR = re.compile(r'[?&]cursor=([^&>]+)[^>]*>; rel="next"')
_NOBODY: Mapping[str, str] = {}


class ManagementError(Exception):
    """The gateway refused or did not answer; the message is one line, for the user.

    Attributes:
        status: the answer's, or None when there was none that could be read.
        unanswered: nobody answered.
        detail: what the gateway said, without the rest of the message; safe to print.
    """

    def __init__(
        self, message: str, *, status: int | None = None, detail: str = "", unanswered: bool = False
    ) -> None:
        super().__init__(message)
        self.unanswered = unanswered
        self.status = status
        self.detail = detail

    @property
    def may_pass(self) -> bool:
        """Whether the same may be answered in a moment."""
        return self.unanswered or self.status in _PASSING

    @property
    def is_login_over(self) -> bool:
        """Whether the token does not work, or no longer."""
        return self.status == HTTPStatus.UNAUTHORIZED


class Management:
    """One user's conversation with a gateway.

    Attributes:
        url: where it is.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._token = token
        self._wire = Wire("httpx", None, time.monotonic, proxies=proxies_allowed(self.url))

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

    def get(self, path: str, query: Mapping[str, str | int | None] = _NOBODY) -> Any:
        """Read something.

        Args:
            path: where it is.
            query: what is None is left out.

        Raises:
            ManagementError: the gateway refused or did not answer.
        """
        return _content(self._send("GET", _with_query(path, query), None), "GET", path)

    def pages(self, path: str, query: Mapping[str, str | int | None] = _NOBODY) -> Iterator[list[Any]]:
        """Read a list page by page.

        Raises:
            ManagementError: the gateway refused, did not answer, or answered with no list.
        """
        cursor: str | None = None
        while True:
            asked = {**query, "limit": PAGE, "cursor": cursor}
            answer = self._send("GET", _with_query(path, asked), None)
            page = _content(answer, "GET", path)
            if not isinstance(page, list):
                raise ManagementError(f"the gateway answered GET {path!r} with something else than a list")
            yield page
            found = _CURSOR.search(answer.headers.get("link", ""))
            if found is None:
                return
            cursor = unquote(found.group(1))

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Change something; numbers in the body keep their digits.

        Raises:
            ManagementError: the gateway refused or did not answer.
        """
        sent = dumps(dict(body or {})).encode("utf-8", "surrogatepass")
        return _content(self._send("POST", path, sent), "POST", path)

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

    def _send(self, method: str, path: str, body: bytes | None) -> Answer:
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            return self._wire.send(Request(method, self.url + path, headers, body), DEADLINE)
        except TransportFault as error:
            why = visible(error)
            raise ManagementError(
                f"the gateway at {self.url!r} does not answer: {why}", unanswered=True
            ) from error
        except ConfigurationError as error:
            raise ManagementError(visible(error)) from error


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


def _with_query(path: str, query: Mapping[str, str | int | None]) -> str:
    said = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(said)}" if said else path


def _content(answer: Answer, method: str, path: str) -> Any:
    try:
        # Decimals, so that what is shown has the digits that were sent.
        content = (
            json.loads(answer.body, parse_float=read_decimal, parse_constant=_no_number)
            if answer.body
            else None
        )
    except (ValueError, RecursionError):
        raise ManagementError(
            f"the gateway answered {method} {path!r} with {answer.status} and something else than JSON",
            status=answer.status,
        ) from None
    if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
        detail = _told(content)
        message = f"the gateway refused {method} {path!r} with {answer.status}: {detail}"
        raise ManagementError(message, status=answer.status, detail=detail)
    return content


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _told(content: Any) -> str:
    detail = content.get("detail", content.get("message")) if isinstance(content, dict) else content
    if isinstance(detail, dict):
        fields = (f"{name}: {', '.join(map(str, _listed(told)))}" for name, told in detail.items())
        return visible("; ".join(fields))
    return visible(detail)


def _listed(told: object) -> list[object]:
    return told if isinstance(told, list) else [told]
