"""``toolgate webhooks listen``: what a receiver would get, and whether it should believe it."""

import json
import os
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from toolgate._capture.jsontext import read_decimal
from toolgate_cli.approvals.layout import Layout
from toolgate_cli.approvals.pages import ascii_json, terminal_width
from toolgate_cli.ask import ask_password, has_terminal
from toolgate_cli.output import fail
from toolgate_cli.visible import visible
from toolgate_cli.webhooks.receiver import Delivery, Receiver
from toolgate_cli.webhooks.signatures import SecretError, Verdict, Verifier

SECRET = "TOOLGATE_WEBHOOK_SECRET"  # noqa: S105 - the variable's name

#: ids that are remembered, to tell a delivery that comes again
_REMEMBERED = 10_000


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
