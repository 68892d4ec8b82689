"""The command ``toolgate verify``."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from toolgate_cli.output import print_json, print_note, sanitize
from toolgate_cli.verify.receiver import WebhookReceiver
from toolgate_cli.verify.registry import Guarantee, load_guarantees
from toolgate_cli.verify.report import Report
from toolgate_cli.verify.runner import Runner, UnusableGateway
from toolgate_cli.verify.trial import Options

TOKEN_VARIABLE: Final = "TOOLGATE_OPERATOR_TOKEN"  # noqa: S105 - the name of a variable, not a token
#: exit code if the gateway or an option cannot be used
_UNUSABLE: Final = 2
_INTERRUPTED: Final = 130
_MAX_PORT: Final = 65_535
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


def verify(
    url: Annotated[str, typer.Argument(metavar="URL", help="The gateway's address.", show_default=False)],
    replica: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="The address of a replica of the gateway; repeat the option for several replicas. "
            "Default: the address of the gateway.",
        ),
    ] = None,
    operator_token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help=f"A file with the operator's token. Default: the variable {TOKEN_VARIABLE}."
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=1, max=10_000, help="Maximum number of requests per second.")
    ] = 100,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Test only this guarantee or topic; repeat the option for several."
        ),
    ] = None,
    webhook_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The URL to which the gateway can send webhooks for this command. Default: the address of "
            "--webhook-listen, if the gateway runs on this machine.",
        ),
    ] = None,
    webhook_listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The address on which this command listens for webhooks.")
    ] = "127.0.0.1:0",
    gateway_log: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="A log file of the gateway. The command tests that it contains no secrets."
        ),
    ] = None,
    kill_hook: Annotated[
        str | None,
        typer.Option(
            metavar="CMD",
            help=(
                "A shell command that stops the gateway or one replica. The tests of an outage need this option."
            ),
        ),
    ] = None,
    restore_hook: Annotated[
        str | None,
        typer.Option(
            metavar="CMD",
            help=(
                "A shell command that restarts the gateway or the replica that the command of --kill-hook stopped."
            ),
        ),
    ] = None,
    expiry: Annotated[
        int,
        typer.Option(
            min=60,
            max=3600,
            help="Seconds after which the gateway deletes the scratch organizations if this command did not.",
        ),
    ] = 900,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as JUnit XML to this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON, in ASCII.")] = False,
) -> None:
    """Test the guarantees of a running gateway in two scratch organizations, which are deleted at the end.

    The gateway must have the setting TOOLGATE_OPERATOR_TOKEN. The exit code is 0 if no guarantee is broken, 1 if one is
    broken, and 2 if an option cannot be used, or the gateway does not respond.
    """
    try:
        token = _read_token(operator_token_file)
        guarantees = load_guarantees(only or [])
        urls = [_check_url(one) for one in replica or [url]]
        _check_url(url)
        listen = _split_address(webhook_listen)
        if junit is not None:
            # Fail before the tests if the file cannot be written.
            junit.touch()
    except (OSError, ValueError) as error:
        print_note(sanitize(error))
        raise typer.Exit(_UNUSABLE) from None
    options = Options(kill_hook, restore_hook, gateway_logs=tuple(gateway_log or ()))
    try:
        report = asyncio.run(
            _verify(urls, token, rate, expiry, options, guarantees, listen, webhook_url, quiet=as_json)
        )
    except UnusableGateway as error:
        print_note(sanitize(error))
        raise typer.Exit(_UNUSABLE) from None
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(_INTERRUPTED) from None
    if junit is not None:
        junit.write_bytes(report.junit())
    if as_json:
        print_json(report.to_json())
    else:
        for note in report.notes:
            typer.echo(f"note: {sanitize(note)}")
        typer.echo(report.summary())
    raise typer.Exit(report.exit_code)


async def _verify(
    urls: list[str],
    token: str,
    rate: float,
    expiry: int,
    options: Options,
    guarantees: list[Guarantee],
    listen: tuple[str, int],
    webhook_url: str | None,
    *,
    quiet: bool,
) -> Report:
    task = asyncio.current_task()
    if task is not None:
        # Ctrl-C cancels the task already; the scratch organizations are deleted in this case too.
        with suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    receiver, problem = _start_receiver(urls, listen, webhook_url)
    options = Options(
        options.kill_hook, options.restore_hook, receiver, problem, gateway_logs=options.gateway_logs
    )
    runner = Runner(
        urls,
        token,
        rate,
        expiry,
        options,
        lambda result: None if quiet else typer.echo(result.line()),
    )
    try:
        return await runner.run(guarantees)
    except asyncio.CancelledError:
        for note in runner.notes or ["interrupted; the scratch organizations were deleted"]:
            print_note(sanitize(note))
        raise
    finally:
        if receiver is not None:
            receiver.close()


def _start_receiver(
    urls: list[str], listen: tuple[str, int], webhook_url: str | None
) -> tuple[WebhookReceiver | None, str]:
    """Return the receiver of webhooks, or None with the reason why there is none."""
    is_local = all(urlsplit(one).hostname in _LOOPBACK for one in urls)
    if webhook_url is None and not is_local:
        return (
            None,
            "the gateway does not run on this machine; give the URL of the receiver of webhooks with --webhook-url",
        )
    try:
        return WebhookReceiver(*listen, url=webhook_url or "").start(), ""
    except OSError as error:
        return None, f"the receiver of webhooks cannot listen on {listen[0]}:{listen[1]}: {error.strerror}"


def _read_token(file: Path | None) -> str:
    if file is not None:
        token = file.read_text(encoding="utf-8").strip()
    else:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ValueError(
            f"the operator's token is missing or invalid; set {TOKEN_VARIABLE}, or name a file with --operator-token-file"
        )
    return token


def _check_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"invalid address {url!r}; write for example https://toolgate.example.com")
    return url.rstrip("/")


def _split_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > _MAX_PORT:
        raise ValueError(f"invalid address {text!r}; write HOST:PORT")
    return host.strip("[]"), int(port)
