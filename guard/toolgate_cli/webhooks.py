"""``toolgate webhooks listen``: receive events and verify their signatures."""

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
from typing import Annotated, Any

import typer

from toolgate._capture.jsontext import read_decimal
from toolgate_cli.layout import Layout
from toolgate_cli.output import ascii_json, fail, terminal_width, visible
from toolgate_cli.prompts import ask_password, has_terminal

HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")

#: the library's words → ours, which say what to do
_REASONS = {
    "Message timestamp too old": "it was signed more than 5 minutes ago: sent again by somebody, or this clock is ahead",
    "Message timestamp too new": "it was signed more than 5 minutes from now: this clock is behind",
    "Invalid Signature Headers": "webhook-timestamp is no number of seconds",
    "No matching signature found": "no signature fits: the secret is another one, or the body was changed on its way",
}


class SecretError(Exception):
    """The secret is none; the message is one line that names the cure, and not the secret."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said of a signature.

    Attributes:
        wrong: why it is not right; None when it is.
    """

    wrong: str | None

    @property
    def is_right(self) -> bool:
        """Whether the event comes from who has the secret."""
        return self.wrong is None


class Verifier:
    """Verifies signatures.

    Args:
        secret: `whsec_…`, as the gateway showed it when the webhook was made.

    Raises:
        SecretError: it is none.
    """

    def __init__(self, secret: str) -> None:
        # The extra's own library, loaded by the one command that needs it.
        from standardwebhooks.webhooks import Webhook, WebhookVerificationError

        self._webhook = Webhook(_checked(secret))
        self._failure = WebhookVerificationError

    def judge(self, headers: Mapping[str, str], body: bytes) -> Verdict:
        """Return whether an event is signed with the secret.

        Args:
            headers: the request's, names in lower case.
            body: as it came.
        """
        missing = [name for name in HEADERS if not headers.get(name)]
        if missing:
            return Verdict(f"the header {', '.join(missing)} is missing")
        try:
            self._webhook.verify(body, {name: headers[name] for name in HEADERS})
        except self._failure as error:
            return Verdict(_REASONS.get(str(error), "it cannot be verified"))
        except json.JSONDecodeError:
            # The library reads the body once the signature has proved right.
            return Verdict(None)
        except RecursionError:
            return Verdict("the body is nested too deeply to be read")
        except UnicodeDecodeError:
            return Verdict("the body is not UTF-8, so it is not as it was signed")
        except ValueError:
            return Verdict("webhook-signature has not the form 'v1,BASE64', several separated by spaces")
        return Verdict(None)


def _checked(secret: str) -> str:
    prefix, _, rest = secret.strip().partition("_")
    try:
        # Some leave the padding out.
        key = base64.b64decode(rest + "=" * (-len(rest) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if prefix != "whsec" or not key:
        raise SecretError("the secret is none of a webhook: it has the form 'whsec_BASE64'; copy it again")
    return secret.strip()


#: an event is far smaller (decisions §2)
LONGEST_BODY = 1024 * 1024

#: seconds that a sender may take
_PATIENCE = 10


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request.

    Attributes:
        headers: names in lower case.
        body: whole.
    """

    headers: Mapping[str, str]
    body: bytes = field(repr=False)


class Receiver(ThreadingHTTPServer):
    """Serves until it is shut down.

    Args:
        host: the address to listen on.
        port: the port; 0 takes a free one.
        read: is called for each delivery, one at a time, and says whether it was right: 204, otherwise 400.

    Attributes:
        broken: why it stopped by itself: nobody reads any more what `read` prints.
    """

    daemon_threads = True
    # A sender that hangs does not keep the command from ending.
    block_on_close = False

    def __init__(self, host: str, port: int, read: Callable[[Delivery], bool]) -> None:
        self._read = read
        self._turn = threading.Lock()
        self.broken: BrokenPipeError | None = None
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        """Where it listens."""
        host = str(self.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}"

    def read(self, delivery: Delivery) -> bool:
        """Let the delivery be read, alone."""
        with self._turn:
            try:
                return self._read(delivery)
            except BrokenPipeError as error:
                # Whoever read what is printed is gone, and a thread of a request cannot end the command.
                self.broken = error
                self.shutdown()
                raise

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of senders that hang up."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _PATIENCE
    server: Receiver
    protocol_version = "HTTP/1.1"
    server_version = "toolgate-listen"
    sys_version = ""

    def do_POST(self) -> None:
        body = self._body()
        if body is None:
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        right = self.server.read(Delivery(headers, body))
        self._answer(HTTPStatus.NO_CONTENT if right else HTTPStatus.BAD_REQUEST)

    def do_GET(self) -> None:
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED)

    do_HEAD = do_PUT = do_DELETE = do_PATCH = do_GET  # noqa: N815 - http.server's names

    def _body(self) -> bytes | None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()):
            self._answer(HTTPStatus.LENGTH_REQUIRED)
            return None
        # Compared as text first: a number of a thousand digits is not read.
        if len(length) > len(str(LONGEST_BODY)) or int(length) > LONGEST_BODY:
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return None
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self._answer(HTTPStatus.BAD_REQUEST)
            return None
        return body

    def _answer(self, status: HTTPStatus) -> None:
        self.close_connection = True
        self.send_response(status)
        self.send_header("Connection", "close")
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Write no log of its own."""


webhooks = typer.Typer(
    name="webhooks",
    help="For people who build a receiver of events.",
    no_args_is_help=True,
)


@webhooks.callback()
def _webhooks() -> None:
    """Keep the command's own name, although it is the only one so far."""


SECRET = "TOOLGATE_WEBHOOK_SECRET"  # noqa: S105 - the variable's name

#: ids that are remembered, to tell a delivery that comes again
_REMEMBERED = 10_000


@webhooks.command()
def listen(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8400,
    secret: Annotated[
        str | None,
        typer.Option(
            help=f"The webhook's secret, whsec_…. Better in {SECRET}, or asked for: others see arguments.",
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Cut no value, however long.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, in ASCII.")] = False,
) -> None:
    """Print each event that is delivered here, and say whether its signature is right; until Ctrl-C.

    What is right is answered with 204, everything else with 400.
    """
    reader = _Reader(_verifier(secret), full=full, as_json=as_json)
    try:
        receiver = Receiver(host, port, reader.read)
    except (OSError, UnicodeError) as error:
        fail(f"cannot listen on {host!r}, port {port}: {getattr(error, 'strerror', None) or error}")
    typer.echo(f"toolgate: listening on {receiver.url}; Ctrl-C ends it", err=True)
    with receiver:
        try:
            receiver.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
    if receiver.broken is not None:
        raise receiver.broken


def _verifier(secret: str | None) -> Verifier:
    given = secret or os.environ.get(SECRET)
    if not given:
        if not has_terminal():
            fail(f"the webhook's secret is needed to verify events; set {SECRET}")
        given = ask_password("Secret of the webhook", from_stdin=False)
    try:
        return Verifier(given)
    except SecretError as error:
        fail(str(error))


class _Reader:
    """Prints deliveries and remembers which came before."""

    def __init__(self, verifier: Verifier, *, full: bool, as_json: bool) -> None:
        self._verifier = verifier
        self._full = full
        self._as_json = as_json
        self._seen: OrderedDict[str, None] = OrderedDict()

    def read(self, delivery: Delivery) -> bool:
        """Print one delivery and say whether its signature is right."""
        verdict = self._verifier.judge(delivery.headers, delivery.body)
        name = delivery.headers.get("webhook-id", "")
        again = verdict.is_right and self._came_before(name)
        try:
            lines = self._lines(name, verdict, _content(delivery.body), again=again)
        except RecursionError:
            # Nested as deeply as nobody reads, but a stranger may send.
            lines = self._lines(name, verdict, _text(delivery.body), again=again)
        for line in lines:
            typer.echo(line)
        return verdict.is_right

    def _came_before(self, name: str) -> bool:
        # Only of what was verified: a stranger must not make the real event look like a repetition.
        before = name in self._seen
        self._seen[name] = None
        self._seen.move_to_end(name)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return before

    def _lines(self, name: str, verdict: Verdict, content: Any, *, again: bool) -> list[str]:
        if self._as_json:
            told = {"id": name, "verified": verdict.is_right, "why_not": verdict.wrong, "came_before": again}
            return [ascii_json({**told, "event": content})]
        layout = Layout(terminal_width(), full=self._full)
        event = content if isinstance(content, dict) else {}
        kind = visible(event["type"]) if isinstance(event.get("type"), str) else "something without a type"
        lines = ["", f"{datetime.now(UTC):%H:%M:%S} {kind[:80]}", *layout.line("id", visible(name) or "none")]
        if verdict.wrong is None:
            lines += layout.line("signature", "right")
        else:
            lines += layout.line("signature", f"WRONG: {verdict.wrong}")
        if again:
            lines += layout.line("came before", "yes: this is a redelivery; act on an id once")
        rest = {key: value for key, value in event.items() if key not in {"type", "data"}}
        data = event.get("data")
        shown: Mapping[str, Any] = {**rest, **data} if isinstance(data, dict) else rest | {"data": data}
        return lines + (layout.context(shown) if event else layout.value("body", content))


def _content(body: bytes) -> Any:
    try:
        return json.loads(body, parse_float=read_decimal, parse_constant=str)
    except (ValueError, RecursionError):
        return _text(body)


def _text(body: bytes) -> str:
    return body.decode("utf-8", "backslashreplace")
