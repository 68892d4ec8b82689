"""``toolgate webhooks``: manage webhooks.

Webhooks for Slack are created in the gateway's web console, which guides the user through the set-up of the Slack app.
"""

from typing import Annotated, Any, Final

import typer
from pydantic import AwareDatetime

from toolgate_cli.client import (
    GatewayClient,
    Resource,
    match_id,
    parse_model,
    pick_one,
    print_list,
    print_page,
)
from toolgate_cli.credentials import password_session, stored_session
from toolgate_cli.options import AsJson, Environment, EnvironmentOption, PasswordStdin, Yes, format_age
from toolgate_cli.output import Column, confirm, fail, print_json, print_note, sanitize, truncate
from toolgate_cli.webhook_listener import listen

_PATH: Final = "/api/webhooks"
_MAX_URL: Final = 60
_COLUMNS: Final = (
    Column("id", no_wrap=True),
    Column("url"),
    Column("status", no_wrap=True),
    Column("events"),
)

WebhookId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The webhook's id, or its first characters, if no other id begins with them."
    ),
]
Event = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TYPE",
        help="A type of event that the webhook receives, such as approval.requested; repeatable.",
        show_default=False,
    ),
]
Description = Annotated[
    str | None, typer.Option(help="A description of the webhook's purpose.", show_default=False)
]


class Webhook(Resource):
    """A webhook of an environment, as the gateway's API returns it."""

    kind: str
    url: str
    description: str | None
    events: list[str]
    include_context: bool
    is_active: bool
    disabled_reason: str | None
    created_at: AwareDatetime

    @property
    def status(self) -> str:
        """Return `enabled` if events are delivered to the webhook, else `disabled`."""
        return "enabled" if self.is_active else "disabled"


class _CreatedWebhook(Webhook):
    secret: str

    def __repr__(self) -> str:
        return f"_CreatedWebhook({self.id!r})"


def list_(environment: EnvironmentOption = Environment.PRODUCTION, as_json: AsJson = False) -> None:
    """List webhooks, newest first."""
    with stored_session() as client:
        found = _fetch(client, environment)
    empty = f"no webhooks in the {environment} environment at {client.url}"
    print_list(found, _COLUMNS, _row, empty=empty, as_json=as_json)


def show(
    webhook_id: WebhookId, environment: EnvironmentOption = Environment.PRODUCTION, as_json: AsJson = False
) -> None:
    """Show one webhook."""
    with stored_session() as client:
        webhook, raw = _find(client, webhook_id, environment)
    if as_json:
        print_json(raw)
    else:
        _print(webhook)


def create(
    url: Annotated[str, typer.Argument(metavar="URL", help="The https address that receives the events.")],
    event: Event = None,
    description: Description = None,
    include_context: Annotated[
        bool, typer.Option("--include-context", help="Include the arguments of tool calls in events.")
    ] = False,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Create a webhook, and print its secret once. By default it receives all events except log.created.

    Asks for your password. The secret is the only line on standard output.
    """
    body: dict[str, Any] = {"url": url, "include_context": include_context}
    body |= {} if event is None else {"events": event}
    body |= {} if description is None else {"description": description}
    with password_session("create a webhook", password_stdin=password_stdin) as client:
        raw = client.post(f"{_PATH}?environment={environment}", body)
        created = parse_model(_CreatedWebhook, raw, "webhook")
    if as_json:
        print_json(raw)
    else:
        typer.echo(sanitize(created.secret))
    print_note(f"this is the secret of the webhook {created.id}; store it now, it is not shown again")


def update(
    webhook_id: WebhookId,
    url: Annotated[str | None, typer.Option(help="The new address.", show_default=False)] = None,
    event: Event = None,
    all_events: Annotated[
        bool,
        typer.Option("--all-events", help="Let the webhook receive all types of events except log.created."),
    ] = False,
    description: Description = None,
    no_description: Annotated[bool, typer.Option("--no-description", help="Remove the description.")] = False,
    include_context: Annotated[
        bool | None,
        typer.Option(
            "--include-context/--no-include-context",
            help="Include the arguments of tool calls in events.",
            show_default=False,
        ),
    ] = None,
    enable: Annotated[
        bool | None,
        typer.Option(
            "--enable/--disable",
            help="Deliver events to the webhook, or stop delivering them.",
            show_default=False,
        ),
    ] = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Change a webhook, or enable it again after the gateway has disabled it. Asks for your password."""
    if event is not None and all_events:
        fail("--event and --all-events exclude each other; use only one of them")
    if description is not None and no_description:
        fail("--description and --no-description exclude each other; use only one of them")
    given = {"url": url, "events": event, "description": description}
    body: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    body |= {"events": None} if all_events else {}
    body |= {"description": None} if no_description else {}
    body |= {} if include_context is None else {"include_context": include_context}
    body |= {} if enable is None else {"is_active": enable}
    if not body:
        fail("no change is given; for the options, see: toolgate webhooks update --help")
    with stored_session() as client:
        found, _ = _find(client, webhook_id, environment)
    purpose = f"change the webhook {found.id}"
    with password_session(purpose, password_stdin=password_stdin) as client:
        raw = client.put(f"{_PATH}/{found.id}?environment={environment}", body)
        changed = parse_model(Webhook, raw, "webhook")
    if as_json:
        print_json(raw)
    else:
        _print(changed)


def delete(
    webhook_id: WebhookId,
    environment: EnvironmentOption = Environment.PRODUCTION,
    yes: Yes = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Delete a webhook permanently; undelivered events are not sent. Asks for your password."""
    with stored_session() as client:
        found, _ = _find(client, webhook_id, environment)
    confirm(f"Delete the webhook {found.id} to {sanitize(found.url)} permanently?", yes=yes)
    purpose = f"delete the webhook {found.id}"
    with password_session(purpose, password_stdin=password_stdin) as client:
        client.delete(f"{_PATH}/{found.id}?environment={environment}")
    typer.echo(f"deleted the webhook {found.id}")


def _fetch(client: GatewayClient, environment: str) -> list[tuple[Webhook, dict[str, Any]]]:
    raw = client.get(_PATH, {"environment": environment})
    return [(parse_model(Webhook, one, "webhook"), one) for one in (raw if isinstance(raw, list) else [raw])]


def _find(client: GatewayClient, wanted: str, environment: str) -> tuple[Webhook, dict[str, Any]]:
    matching = match_id(_fetch(client, environment), wanted)
    missing = f"the {environment} environment has no webhook {wanted!r}; see: toolgate webhooks list"
    return pick_one(matching, wanted, plural="webhooks", missing=missing)


def _print(webhook: Webhook) -> None:
    print_page(
        f"Webhook {webhook.id} · {webhook.status}",
        {
            "url": sanitize(webhook.url),
            "kind": sanitize(webhook.kind),
            "events": ", ".join(map(sanitize, webhook.events)),
            "context": "included" if webhook.include_context else "not included",
            "created": f"{format_age(webhook.created_at)} ago",
            "description": sanitize(webhook.description or ""),
            "disabled": sanitize(webhook.disabled_reason or ""),
        },
    )


def _row(webhook: Webhook) -> tuple[str, ...]:
    return (
        webhook.id,
        truncate(sanitize(webhook.url), _MAX_URL),
        webhook.status,
        ", ".join(map(sanitize, webhook.events)),
    )


webhooks = typer.Typer(
    name="webhooks",
    help="List, create, change and delete webhooks, and receive their events. Changes ask for your password.",
    no_args_is_help=True,
)
webhooks.command("list")(list_)
webhooks.command()(show)
webhooks.command()(create)
webhooks.command()(update)
webhooks.command()(delete)
webhooks.command()(listen)
