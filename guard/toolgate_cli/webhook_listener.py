"""``toolgate webhooks listen``: print the events that webhooks deliver, and whether their signatures are valid."""

import base64
import binascii
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any, Final

import typer

from toolgate._capture.jsontext import read_decimal
from toolgate_cli.layout import Layout
from toolgate_cli.options import Full, JsonLines
from toolgate_cli.output import (
    ask_password,
    fail,
    has_terminal,
    print_note,
    sanitize,
    terminal_width,
    to_ascii_json,
)

SECRET_VARIABLE: Final = "TOOLGATE_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable, not a secret

_HEADERS: Final = ("webhook-id", "webhook-timestamp", "webhook-signature")
#: maximum number of event ids that are stored to detect repeated deliveries of an event
_MAX_REMEMBERED: Final = 10_000
#: maximum bytes of a request's body; every event is far smaller
_MAX_BODY: Final = 1024 * 1024
_RECEIVE_SECONDS: Final = 10
_MAX_TYPE: Final = 80

#: maps error messages of the library standardwebhooks to the texts that the command prints instead
_REASONS: Final = {
    "Message timestamp too old": (
        "the event was signed more than 5 minutes ago: the event is old, or this machine's clock is ahead"
    ),
    "Message timestamp too new": (
        "the event was signed more than 5 minutes in the future: this machine's clock is behind"
    ),
    "Invalid Signature Headers": "the header webhook-timestamp is not a number of seconds",
    "No matching signature found": "no signature matches: the secret is wrong, or the body was changed",
}


def listen(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0 chooses a free port.")
    ] = 8400,
    secret: Annotated[
        str | None,
        typer.Option(
            help=f"The webhook's secret, whsec_…. Prefer the environment variable {SECRET_VARIABLE}: "
            "other users of this machine can see the options of a command.",
        ),
    ] = None,
    full: Full = False,
    as_json: JsonLines = False,
) -> None:
    """Print each event that is delivered here, and whether its signature is valid, until Ctrl-C.

    The response to a valid event is 204, to all others 400.
    """
    printer = _EventPrinter(_create_verifier(secret), full=full, as_json=as_json)
    try:
        receiver = Receiver(host, port, printer.print)
    except (OSError, UnicodeError) as error:
        fail(f"cannot listen on {host!r}, port {port}: {getattr(error, 'strerror', None) or error}")
    print_note(f"listening on {receiver.url}; stop with Ctrl-C")
    with receiver:
        try:
            receiver.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
    if receiver.broken is not None:
        raise receiver.broken


class SecretError(Exception):
    """The secret of a webhook is invalid; the message does not contain it."""


class Verifier:
    """Verifies the signatures of events with the reference library of Standard Webhooks.

    Raises:
        SecretError: the secret does not have the form `whsec_BASE64`.
    """

    def __init__(self, secret: str) -> None:
        # Only this command needs the library, so the other commands do not import it.
        from standardwebhooks.webhooks import Webhook, WebhookVerificationError

        self._webhook = Webhook(_check_secret(secret))
        self._failure = WebhookVerificationError

    def find_error(self, headers: Mapping[str, str], body: bytes) -> str | None:
        """Return the reason why an event's signature is invalid, or None if the signature is valid.

        The names in `headers` must be in lower case.
        """
        missing = [name for name in _HEADERS if not headers.get(name)]
        if missing:
            return f"the header {', '.join(missing)} is missing"
        try:
            self._webhook.verify(body, {name: headers[name] for name in _HEADERS})
        except self._failure as error:
            return _REASONS.get(str(error), "the signature cannot be verified")
        except json.JSONDecodeError:
            # The signature is valid, because the library parses the JSON only after it has verified the signature.
            return None
        except RecursionError:
            return "the body is nested too deeply"
        except UnicodeDecodeError:
            return "the body is not UTF-8"
        except ValueError:
            return "the header webhook-signature does not contain signatures of the form 'v1,BASE64', separated by spaces"
        return None


@dataclass(frozen=True, slots=True)
class Delivery:
    """HTTP request with which a webhook delivers one event; the names of its headers are in lower case."""

    headers: Mapping[str, str]
    body: bytes = field(repr=False)


class Receiver(ThreadingHTTPServer):
    """HTTP server that receives the events of webhooks.

    Args:
        host: the address to listen on.
        port: the port; with 0, the operating system chooses a free port.
        handle: function that is called for each event, one at a time. The response is
            204 if the function returns True, else 400.

    Attributes:
        broken: the error that stopped the server because standard output is closed, or None.
    """

    daemon_threads = True
    # The server does not wait for slow clients when it is closed.
    block_on_close = False

    def __init__(self, host: str, port: int, handle: Callable[[Delivery], bool]) -> None:
        self._handle = handle
        self._lock = threading.Lock()
        self.broken: BrokenPipeError | None = None
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        """Return the server's URL."""
        host = str(self.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}"

    def handle_delivery(self, delivery: Delivery) -> bool:
        """Pass a delivery to the function `handle`, and return whether the delivery is valid."""
        with self._lock:
            try:
                return self._handle(delivery)
            except BrokenPipeError as error:
                # This thread handles one request and cannot end the command. Therefore it stores the error and stops
                # the server. `listen` raises the error after the server has stopped.
                self.broken = error
                self.shutdown()
                raise

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors of a connection, such as a client that disconnects."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _RECEIVE_SECONDS
    server: Receiver
    protocol_version = "HTTP/1.1"
    server_version = "toolgate-listen"
    sys_version = ""

    def do_POST(self) -> None:
        body = self._read_body()
        if body is None:
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        is_valid = self.server.handle_delivery(Delivery(headers, body))
        self._respond(HTTPStatus.NO_CONTENT if is_valid else HTTPStatus.BAD_REQUEST)

    def do_GET(self) -> None:
        self._respond(HTTPStatus.METHOD_NOT_ALLOWED)

    do_HEAD = do_PUT = do_DELETE = do_PATCH = do_GET  # noqa: N815 - http.server requires these names

    def _read_body(self) -> bytes | None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            self._respond(HTTPStatus.LENGTH_REQUIRED)
            return None
        # The number of digits is compared first, because Python refuses to parse a number with thousands of digits.
        if len(length) > len(str(_MAX_BODY)) or int(length) > _MAX_BODY:
            self._respond(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return None
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self._respond(HTTPStatus.BAD_REQUEST)
            return None
        return body

    def _respond(self, status: HTTPStatus) -> None:
        self.close_connection = True
        self.send_response(status)
        self.send_header("Connection", "close")
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server requires this name
        """Suppress the request log of http.server."""


class _EventPrinter:
    """Prints each delivered event; an event whose id was delivered before is marked as a redelivery."""

    def __init__(self, verifier: Verifier, *, full: bool, as_json: bool) -> None:
        self._verifier = verifier
        self._full = full
        self._as_json = as_json
        self._seen: OrderedDict[str, None] = OrderedDict()

    def print(self, delivery: Delivery) -> bool:
        """Print a delivery and return whether its signature is valid."""
        error = self._verifier.find_error(delivery.headers, delivery.body)
        name = delivery.headers.get("webhook-id", "")
        # Only the ids of events with a valid signature are stored. Otherwise anyone could send a forged event,
        # and the real event with the same id would then be marked as a redelivery.
        is_redelivery = error is None and self._remember(name)
        try:
            lines = self._lines(name, error, _parse_body(delivery.body), is_redelivery=is_redelivery)
        except RecursionError:
            lines = self._lines(name, error, _decode(delivery.body), is_redelivery=is_redelivery)
        for line in lines:
            typer.echo(line)
        return error is None

    def _remember(self, name: str) -> bool:
        """Store an event's id, and return whether it was stored before."""
        is_known = name in self._seen
        self._seen[name] = None
        self._seen.move_to_end(name)
        if len(self._seen) > _MAX_REMEMBERED:
            self._seen.popitem(last=False)
        return is_known

    def _lines(self, name: str, error: str | None, content: Any, *, is_redelivery: bool) -> list[str]:
        if self._as_json:
            facts = {"id": name, "verified": error is None, "why_not": error, "came_before": is_redelivery}
            return [to_ascii_json({**facts, "event": content})]
        layout = Layout(terminal_width(), full=self._full)
        event = content if isinstance(content, dict) else {}
        kind = sanitize(event["type"]) if isinstance(event.get("type"), str) else "event without a type"
        lines = ["", f"{datetime.now(UTC):%H:%M:%S} {kind[:_MAX_TYPE]}"]
        lines += layout.line("id", sanitize(name) or "none")
        lines += layout.line("signature", "valid" if error is None else f"INVALID: {error}")
        if is_redelivery:
            lines += layout.line("redelivery", "yes: an event with this id was received before")
        rest = {key: value for key, value in event.items() if key not in {"type", "data"}}
        data = event.get("data")
        shown: Mapping[str, Any] = {**rest, **data} if isinstance(data, dict) else rest | {"data": data}
        return lines + (layout.context(shown) if event else layout.value("body", content))


def _create_verifier(secret: str | None) -> Verifier:
    given = secret or os.environ.get(SECRET_VARIABLE)
    if not given:
        if not has_terminal():
            fail(f"the webhook's secret is needed to verify events; set {SECRET_VARIABLE}")
        given = ask_password("Secret of the webhook", from_stdin=False)
    try:
        return Verifier(given)
    except SecretError as error:
        fail(str(error))


def _check_secret(secret: str) -> str:
    prefix, _, rest = secret.strip().partition("_")
    try:
        # The base64 padding (`=`) may be missing in a secret, so it is added here.
        key = base64.b64decode(rest + "=" * (-len(rest) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if prefix != "whsec" or not key:
        raise SecretError("the secret of a webhook has the form 'whsec_BASE64'; copy it again")
    return secret.strip()


def _parse_body(body: bytes) -> Any:
    try:
        return json.loads(body, parse_float=read_decimal, parse_constant=str)
    except (ValueError, RecursionError):
        return _decode(body)


def _decode(body: bytes) -> str:
    return body.decode("utf-8", "backslashreplace")
