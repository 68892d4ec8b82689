"""HTTP client for the gateway: management requests of a user, and requests with an agent's API key."""

import json
import re
import time
from collections.abc import Generator, Iterator, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Literal, NoReturn, Self, TypeVar
from urllib.parse import unquote, urlencode

import typer
from pydantic import BaseModel, ValidationError

from toolgate._capture.jsontext import dumps, read_decimal
from toolgate._http.messages import Request, Response, TransportError
from toolgate._http.retry import retry_after
from toolgate._http.transport import HttpSender
from toolgate.errors import ConfigurationError
from toolgate.settings import Settings
from toolgate_cli.output import visible

Model = TypeVar("Model", bound=BaseModel)

#: of something in front of the gateway, of a gateway that is just starting or stopping, or that is asked too often
_PASSING = frozenset({
    HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT,
})  # fmt: skip


class ManagementError(Exception):
    """The gateway refused or did not answer; the message is one line, for the user.

    Attributes:
        status: the answer's, or None when there was none that could be read.
        unanswered: nobody answered.
        detail: what the gateway said, without the rest of the message; safe to print.
        changing: it was a request that changes something.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        detail: str = "",
        unanswered: bool = False,
        changing: bool = False,
    ) -> None:
        super().__init__(message)
        self.unanswered = unanswered
        self.status = status
        self.detail = detail
        self.changing = changing

    @property
    def may_pass(self) -> bool:
        """Whether the same may be answered in a moment."""
        return self.unanswered or self.status in _PASSING

    @property
    def is_login_over(self) -> bool:
        """Whether the token does not work, or no longer."""
        return self.status == HTTPStatus.UNAUTHORIZED

    @property
    def leaves_unknown(self) -> bool:
        """Whether nobody can tell if what was asked for was done."""
        if self.unanswered or self.status is None:
            return self.changing
        # A refusal changes nothing; what is neither a refusal nor readable may have.
        refused = HTTPStatus.MULTIPLE_CHOICES <= self.status < HTTPStatus.INTERNAL_SERVER_ERROR
        return self.changing and not refused


def read_answer(answer: Response, method: str, path: str) -> Any:
    """Return what an answer says.

    Raises:
        ManagementError: it is a refusal, or no JSON.
    """
    try:
        # Decimals, so that what is shown has the digits that were sent.
        content = (
            json.loads(answer.body, parse_float=read_decimal, parse_constant=_reject_constant)
            if answer.body
            else None
        )
    except (ValueError, RecursionError):
        raise ManagementError(
            f"the gateway answered {method} {path!r} with {answer.status} and something else than JSON",
            status=answer.status,
            changing=method != "GET",
        ) from None
    if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
        detail = _error_detail(content)
        message = f"the gateway refused {method} {path!r} with {answer.status}: {detail}"
        raise ManagementError(message, status=answer.status, detail=detail, changing=method != "GET")
    return content


def read_as(model: type[Model], content: Any, kind: str) -> Model:
    """Return a thing from the gateway's JSON.

    Raises:
        ManagementError: it is none.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise ManagementError(
            f"the gateway answered with something that is no {kind}: its {visible(where)!r} is wrong"
        ) from None


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _error_detail(content: Any) -> str:
    detail = content.get("detail", content.get("message")) if isinstance(content, dict) else content
    if isinstance(detail, dict):
        # Limits of the plan are objects with a message of their own (spec §7).
        if "error" in detail and isinstance(detail.get("message"), str):
            return visible(detail["message"])
        fields = (f"{name}: {', '.join(map(str, _as_list(told)))}" for name, told in detail.items())
        return visible("; ".join(fields))
    return visible(detail)


def _as_list(told: object) -> list[object]:
    return told if isinstance(told, list) else [told]


#: seconds that a command waits in a row
MAX_WAIT = 60.0

#: a gateway that asks for no pause at all is not to be hammered
_MIN_WAIT = 1.0


class Patience:
    """What is left of the seconds that a command waits."""

    def __init__(self) -> None:
        self._left = MAX_WAIT

    def waited(self, answer: Response) -> bool:
        """Wait as an answer asks, and say whether that was done: then the same is to be sent again."""
        if answer.status != HTTPStatus.TOO_MANY_REQUESTS:
            self._left = MAX_WAIT
            return False
        asked = retry_after(answer.headers.get("retry-after"), datetime.now(UTC))
        if asked is None:
            return False
        seconds = max(_MIN_WAIT, asked)
        if seconds > self._left:
            return False
        self._left -= seconds
        typer.echo(f"toolgate: the gateway is asked too often; waiting {seconds:.0f} s, as it says", err=True)
        time.sleep(seconds)
        return True


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


class SdkSurface:
    """A conversation under an API key, in a `with` block.

    Args:
        settings: where the gateway is, and the key.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._wire = HttpSender(settings.url, settings.http, network=settings.network)
        self._patience = Patience()

    def check(self, question: dict[str, Any]) -> dict[str, Any]:
        """Ask what a check would answer, without anything coming of it.

        Raises:
            ManagementError: the gateway refused, did not answer, or decided nothing.
        """
        path = "/sdk/check"
        body = dumps(question | {"dry_run": True}).encode("utf-8", "surrogatepass")
        answer = read_answer(self.send("POST", path, body), "POST", path)
        if not isinstance(answer, dict) or not (
            isinstance(answer.get("allowed"), bool) and isinstance(answer.get("requires_approval"), bool)
        ):
            raise ManagementError(
                f"what answers at {self._settings.url!r} decides nothing; is it a Toolgate gateway?"
            )
        if answer["allowed"] and (answer["requires_approval"] or answer.get("reason") is not None):
            raise ManagementError(f"what answers at {self._settings.url!r} contradicts itself")
        return answer

    def permissions(self, agent_id: str) -> Response:
        """Ask what an agent may do; the answer is as it came.

        Raises:
            ManagementError: the gateway did not answer.
        """
        return self.send("GET", f"/sdk/permissions?{urlencode({'agent_id': agent_id}, errors='replace')}")

    def send(self, method: str, path: str, body: bytes | None = None) -> Response:
        """Send a request and return its answer as it came.

        Raises:
            ManagementError: the gateway did not answer.
        """
        headers = {"X-API-Key": self._settings.api_key, "Content-Type": "application/json"}
        request = Request(method, self._settings.url + path, headers, body)
        try:
            while True:
                answer = self._wire.send(request, self._settings.timeout)
                if not self._patience.waited(answer):
                    return answer
        except TransportError as error:
            raise ManagementError(
                f"the gateway at {self._settings.url!r} does not answer: {visible(error)}", unanswered=True
            ) from error
        except ConfigurationError as error:
            raise ManagementError(visible(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()


def refuses_key(error: ManagementError) -> bool:
    """Say whether it was the key that was refused."""
    return error.status == HTTPStatus.UNAUTHORIZED
