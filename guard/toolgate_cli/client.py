"""HTTP client of all commands, and the resources, such as agents and API keys, that the gateway returns.

The client sends requests to the gateway with a user's token or an agent's API key.
"""

import json
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Final, NoReturn, Self, TypeVar
from urllib.parse import unquote, urlencode

import typer
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from toolgate._capture.jsontext import dumps, read_decimal
from toolgate._http.exchange import Request, Response, TransportError
from toolgate._http.retry import retry_after
from toolgate._http.transport import HttpSender
from toolgate._settings import Settings
from toolgate.errors import ConfigurationError
from toolgate_cli.layout import Layout
from toolgate_cli.output import Column, fail, print_json, print_note, print_table, sanitize, terminal_width

Model = TypeVar("Model", bound=BaseModel)
Query = Mapping[str, str | int | None]

#: time limit in seconds for a request, or for each chunk of a streamed response
_TIMEOUT = 15.0
#: maximum number of entries in one page of a list
PAGE_SIZE = 100
#: maximum total seconds that a command waits after consecutive responses with status 429 (rate limit)
MAX_RATE_LIMIT_WAIT = 60.0
#: minimum seconds that a command waits after status 429, because `Retry-After` may be 0
_MIN_RATE_LIMIT_WAIT = 1.0
_MAX_ERROR_BODY = 64 * 1024

_NEXT_CURSOR = re.compile(r'[?&]cursor=([^&>]+)[^>]*>; rel="next"')
#: HTTP statuses of temporary failures, caused by a rate limit, by a proxy, or by a gateway that starts or stops
_TEMPORARY = frozenset({
    HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT,
})  # fmt: skip
_NO_QUERY: Query = {}


class GatewayError(Exception):
    """The gateway refused a request, sent an invalid response, or did not respond; the message is one line.

    Attributes:
        status: the HTTP status; None if there was no response, or if its JSON does not have the expected form.
        detail: the error message in the gateway's response, safe to print; empty if there is none.
        unavailable: whether there was no response.
        is_change: whether the request was meant to change data at the gateway.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        detail: str = "",
        unavailable: bool = False,
        is_change: bool = False,
    ) -> None:
        super().__init__(message)
        self.unavailable = unavailable
        self.status = status
        self.detail = detail
        self.is_change = is_change

    @property
    def is_temporary(self) -> bool:
        """Return whether the same request may succeed later."""
        return self.unavailable or self.status in _TEMPORARY

    @property
    def is_unauthorized(self) -> bool:
        """Return whether the token or API key is invalid or has expired."""
        return self.status == HTTPStatus.UNAUTHORIZED

    @property
    def is_outcome_unknown(self) -> bool:
        """Return whether the gateway may have made the requested change although the request failed."""
        if self.unavailable or self.status is None:
            return self.is_change
        # A gateway that responds with a redirect or a client error (3xx or 4xx) has changed nothing.
        is_refusal = HTTPStatus.MULTIPLE_CHOICES <= self.status < HTTPStatus.INTERNAL_SERVER_ERROR
        return self.is_change and not is_refusal


class GatewayClient:
    """HTTP client for one gateway; after status 429 (rate limit) it waits and sends the request again.

    Attributes:
        url: the gateway's address, without a slash at the end.
    """

    def __init__(self, url: str, token: str | None = None, *, settings: Settings | None = None) -> None:
        self.url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        self._timeout = _TIMEOUT
        self._rate_limit = RateLimitWait()
        if settings is None:
            self._sender = HttpSender(self.url)
        else:
            self._sender = HttpSender(self.url, settings.http, network=settings.network)
            self._headers["X-API-Key"] = settings.api_key
            self._timeout = settings.timeout
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    @classmethod
    def for_agent(cls, settings: Settings) -> Self:
        """Return a client that uses an agent's settings: API key, certificates, proxies and time-out."""
        return cls(settings.url, settings=settings)

    def __repr__(self) -> str:
        return f"GatewayClient({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sender.close()

    def get(self, path: str, query: Query = _NO_QUERY) -> Any:
        """Send a GET request and return the JSON of the response; query parameters that are None are left out.

        Raises:
            GatewayError: the request failed. All other methods that send requests raise this error too.
        """
        return read_response(self.send("GET", _with_query(path, query)), "GET", path)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a POST request and return the JSON of the response; decimals in the body keep all digits."""
        return self._change("POST", path, body)

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a PUT request, which changes only the fields in `body`, and return the JSON of the response."""
        return self._change("PUT", path, body)

    def delete(self, path: str) -> None:
        """Send a DELETE request."""
        read_response(self.send("DELETE", path), "DELETE", path)

    def pages(self, path: str, query: Query = _NO_QUERY) -> Iterator[list[Any]]:
        """Send GET requests for all pages of a list and yield each page, a list of JSON values."""
        cursor: str | None = None
        while True:
            response = self.send("GET", _with_query(path, {**query, "limit": PAGE_SIZE, "cursor": cursor}))
            page = read_response(response, "GET", path)
            if not isinstance(page, list):
                raise GatewayError(f"invalid response to GET {path!r}: expected a list")
            yield page
            found = _NEXT_CURSOR.search(response.headers.get("link", ""))
            if found is None:
                return
            cursor = unquote(found.group(1))

    def count(self, path: str, query: Query = _NO_QUERY) -> int | None:
        """Return the number of entries in a list, or None if the list is too long for the gateway to count."""
        response = self.send("GET", _with_query(path, {**query, "limit": 1}))
        read_response(response, "GET", path)
        total = response.headers.get("x-total-count", "")
        return int(total) if total.isascii() and total.isdigit() else None

    def stream(self, path: str, query: Query = _NO_QUERY) -> Generator[bytes]:
        """Send a GET request and yield the body of the response in chunks; its length is not limited."""
        request = self._request("GET", _with_query(path, query))
        try:
            while True:
                with self._sender.stream(request, self._timeout) as (response, chunks):
                    if response.status == HTTPStatus.OK:
                        yield from chunks
                        return
                    refusal = Response(response.status, response.headers, _read_error_body(chunks))
                if not self._rate_limit.wait(refusal):
                    read_response(refusal, "GET", path)
                    raise GatewayError(f"the gateway answered GET {path!r} with {refusal.status}")
        except (TransportError, ConfigurationError) as error:
            raise self._wrap_error(error, "GET") from error

    def send(
        self, method: str, path: str, body: bytes | None = None, *, timeout: float | None = None
    ) -> Response:
        """Send a request and return the response, even with an error status; `read_response` raises the error.

        `timeout` is the time limit in seconds for a request that takes longer than others.
        """
        request = self._request(method, path, body)
        try:
            while True:
                response = self._sender.send(request, timeout or self._timeout)
                if not self._rate_limit.wait(response):
                    return response
        except (TransportError, ConfigurationError) as error:
            raise self._wrap_error(error, method) from error

    def _change(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        content = dumps(dict(body or {})).encode("utf-8", "surrogatepass")
        return read_response(self.send(method, path, content), method, path)

    def _request(self, method: str, path: str, body: bytes | None = None) -> Request:
        return Request(method, self.url + path, self._headers, body)

    def _wrap_error(self, error: Exception, method: str) -> GatewayError:
        if isinstance(error, ConfigurationError):
            return GatewayError(sanitize(error))
        return GatewayError(
            f"the gateway at {self.url!r} does not respond: {sanitize(error)}",
            unavailable=True,
            is_change=method != "GET",
        )


class RateLimitWait:
    """Waits after status 429 (rate limit); consecutive waits take at most `MAX_RATE_LIMIT_WAIT` seconds in total."""

    def __init__(self) -> None:
        self._left = MAX_RATE_LIMIT_WAIT

    def wait(self, response: Response) -> bool:
        """Wait after a response with status 429 if enough time is left; return whether to send the request again."""
        if response.status != HTTPStatus.TOO_MANY_REQUESTS:
            self._left = MAX_RATE_LIMIT_WAIT
            return False
        requested = retry_after(response.headers.get("retry-after"), datetime.now(UTC))
        if requested is None:
            return False
        seconds = max(_MIN_RATE_LIMIT_WAIT, requested)
        if seconds > self._left:
            return False
        self._left -= seconds
        print_note(f"rate limit reached; waiting {seconds:.0f} s as the gateway requires")
        time.sleep(seconds)
        return True


class Outage:
    """Reports the beginning and the end of an outage of the gateway on standard error, for commands that poll it."""

    def __init__(self) -> None:
        self._is_reported = False

    def report(self, error: GatewayError, message: str) -> None:
        """Print that the gateway is unavailable, once per outage.

        Raises:
            typer.Exit: the error is not temporary; `message` was printed.
        """
        if not error.is_temporary:
            fail(message)
        if not self._is_reported:
            print_note(f"{error}; retrying")
        self._is_reported = True

    def end(self) -> None:
        """Print that the gateway responds again, if an outage was reported."""
        if self._is_reported:
            print_note("the gateway is available again")
        self._is_reported = False


def read_response(response: Response, method: str, path: str) -> Any:
    """Return the JSON of a response, or None if its body is empty; decimals keep all digits.

    Raises:
        GatewayError: the status is an error, or the content is not JSON.
    """
    is_change = method != "GET"
    try:
        content = (
            json.loads(response.body, parse_float=read_decimal, parse_constant=_reject_constant)
            if response.body
            else None
        )
    except (ValueError, RecursionError):
        raise GatewayError(
            f"invalid response to {method} {path!r}: status {response.status}, and not JSON",
            status=response.status,
            is_change=is_change,
        ) from None
    if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
        detail = _error_detail(content)
        message = f"the gateway refused {method} {path!r} with {response.status}: {detail}"
        raise GatewayError(message, status=response.status, detail=detail, is_change=is_change)
    return content


def parse_model(model: type[Model], content: Any, name: str) -> Model:
    """Validate the JSON of a response and return it as an instance of `model`; error messages contain `name`.

    Raises:
        GatewayError: the JSON does not have the form of the model.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        reason = f"wrong value of {sanitize(where)!r}" if where else "not an object"
        raise GatewayError(f"the gateway sent an invalid {name}: {reason}") from None


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _error_detail(content: Any) -> str:
    detail = content.get("detail", content.get("message")) if isinstance(content, dict) else content
    if not isinstance(detail, dict):
        return sanitize(detail)
    if "error" in detail and isinstance(detail.get("message"), str):
        # An error about a limit of the organization's plan is an object; its text is in `message`.
        return sanitize(detail["message"])
    fields = (
        f"{name}: {', '.join(map(str, errors if isinstance(errors, list) else [errors]))}"
        for name, errors in detail.items()
    )
    return sanitize("; ".join(fields))


def _read_error_body(chunks: Iterator[bytes]) -> bytes:
    body = b""
    for chunk in chunks:
        body += chunk
        if len(body) > _MAX_ERROR_BODY:
            break
    return body


def _with_query(path: str, query: Query) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    # An argument of the command line may contain bytes that are not valid text. They are replaced by question marks.
    # The value then raises no error here, and matches nothing at the gateway.
    return f"{path}?{urlencode(given, errors='replace')}" if given else path


_ID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_ID_PREFIX: Final = re.compile(r"[0-9a-f-]{4,36}")
_MAX_LISTED: Final = 5


class Resource(BaseModel):
    """Base class of resources that the gateway's API returns; it validates `id`, which is used in the paths of URLs."""

    model_config = ConfigDict(frozen=True)

    id: Annotated[str, Field(pattern=f"^{_ID.pattern}$")]


AnyResource = TypeVar("AnyResource", bound=Resource)


def is_id(text: str) -> bool:
    """Return whether a text is a complete id."""
    return bool(_ID.fullmatch(text))


def match_id(everything: Sequence[tuple[AnyResource, Any]], wanted: str) -> list[tuple[AnyResource, Any]]:
    """Return the resources whose id begins with `wanted` (at least 4 characters), each with its JSON."""
    prefix = wanted.strip().lower()
    return [one for one in everything if _ID_PREFIX.fullmatch(prefix) and one[0].id.startswith(prefix)]


def pick_one(
    found: Sequence[tuple[AnyResource, Any]], wanted: str, *, plural: str, missing: str
) -> tuple[AnyResource, Any]:
    """Return the only element of `found`; if there is none or more than one, end the command with an error.

    Args:
        found: the resources that match, each with its JSON.
        wanted: the user input.
        plural: name of the kind of resource in the error message, such as "agents".
        missing: the error message if no resource matches.

    Raises:
        typer.Exit: no resource matches, or more than one resource matches.
    """
    if not found:
        fail(missing)
    if len(found) > 1:
        ids = ", ".join(resource.id for resource, _ in found[:_MAX_LISTED])
        fail(f"{wanted!r} matches {len(found):,} {plural}: {ids}; use the complete id of one of them")
    return found[0]


def print_list(
    found: Sequence[tuple[AnyResource, Any]],
    columns: Sequence[Column],
    row: Callable[[AnyResource], Sequence[str]],
    *,
    empty: str,
    as_json: bool,
) -> None:
    """Print resources, each with its JSON, as a table or as JSON; the text `empty` replaces an empty table."""
    if as_json:
        print_json([raw for _, raw in found])
    elif not found:
        typer.echo(empty)
    else:
        print_table(columns, (row(resource) for resource, _ in found))


def print_page(title: str, fields: Mapping[str, str | None]) -> None:
    """Print a title and, below it, fields that the caller has sanitized; empty fields are omitted."""
    typer.echo(title)
    layout = Layout(terminal_width())
    for label, text in fields.items():
        for line in layout.line(label, text) if text else ():
            typer.echo(line)
