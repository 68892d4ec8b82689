"""Console pages for the settings of webhooks and Slack.

Each connected Slack channel has its own webhook, through which it receives events.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.console.dependencies import (
    Form,
    PageContext,
    check_not_repeated,
    form_route,
    page_route,
    require_admin,
)
from toolgate_service.console.queries import load_emails
from toolgate_service.console.templates import read_pagination, render_page
from toolgate_service.slack import service as slack
from toolgate_service.slack.repository import signing_secrets
from toolgate_service.slack.schemas import LinkCodeView
from toolgate_service.webhooks import repository, service
from toolgate_service.webhooks.events import (
    APPROVAL_TYPES,
    DEFAULT_TYPES,
    EVENT_TYPES,
    OPT_IN_TYPES,
    has_feature,
)
from toolgate_service.webhooks.models import DELIVERED, FAILED, PENDING, SIGNING, SLACK, STANDARD
from toolgate_service.webhooks.repository import find_current_secret
from toolgate_service.webhooks.schemas import (
    DeliveryStatus,
    NewWebhook,
    NewWebhookView,
    RotatedSecretView,
    WebhookChange,
    WebhookView,
)

WEBHOOKS = "/console/settings/webhooks"
PAGE_SIZE = 25
#: Maximum number of deliveries that a user can page through. It is limited because the database must read every skipped
#: row. The API, which uses cursors, lists all deliveries.
MAX_OFFSET = 5_000
_STATUSES: dict[str, DeliveryStatus] = {PENDING: "pending", DELIVERED: "delivered", FAILED: "failed"}


def read_new_webhook(form: Form) -> NewWebhook:
    """Parse the form that creates a webhook.

    Raises:
        ValidationError: A field is missing or invalid.
    """
    return NewWebhook.model_validate({"kind": STANDARD, "url": form["url"].strip(), **_terms(form)})


def read_new_channel(form: Form) -> NewWebhook:
    """Parse the form that connects a Slack channel, and return the new webhook that sends events to the channel.

    Raises:
        ValidationError: A field is missing or invalid.
    """
    return NewWebhook.model_validate(
        {
            "kind": SLACK,
            "url": form["url"].strip(),
            "signing_secret": form.text("signing_secret"),
            "description": form.text("description"),
            "include_context": "include_context" in form,
        }
    )


def _terms(form: Form) -> dict[str, object]:
    # Browsers do not submit unchecked checkboxes, so a missing field means an unchecked checkbox.
    return {
        "description": form.text("description"),
        "events": form.all("events") if form["which"] == "some" else None,
        "include_context": "include_context" in form,
    }


async def create_webhook(page: PageContext, form: Form) -> Response:
    """Create a webhook and show its signing secret, which is never shown again."""

    async def refuse_repetition(session: AsyncSession) -> None:
        check_not_repeated(form, _newest_id(await _list_webhooks(session, page)))

    new = read_new_webhook(form)
    made = await service.create_webhook(
        page.gateway, page.caller, page.environment, new, first=refuse_repetition
    )
    return await show_webhooks(page, made=made)


async def _list_webhooks(session: AsyncSession, page: PageContext) -> Sequence[WebhookView]:
    found = await repository.list_webhooks(session, page.caller, page.environment)
    return [service.webhook_view(one) for one in found]


def _newest_id(found: Sequence[WebhookView]) -> str:
    return found[0].id if found else ""


async def show_webhooks(
    page: PageContext,
    status: int = 200,
    *,
    message: str | None = None,
    typed: Form | None = None,
    made: NewWebhookView | None = None,
) -> Response:
    """Show the page that lists all webhooks, newest first."""
    async with page.gateway.database.reading() as session:
        found = await _list_webhooks(session, page)
    return await render_page(
        page,
        "settings/webhooks.html",
        status,
        webhooks=found,
        newest=_newest_id(found),
        in_plan=has_feature(page.gateway.plans, page.caller.plan),
        kinds=EVENT_TYPES,
        opt_in=OPT_IN_TYPES,
        made=made,
        message=message,
        typed=typed or Form([]),
    )


async def change_webhook(page: PageContext, form: Form) -> Response:
    """Change the settings of a webhook, such as its URL and the events that it receives."""
    # An empty URL or secret means that the current value stays: the form of a Slack channel never shows these values,
    # so its fields are empty unless the user changes them.
    typed = {name: text for name in ("url", "signing_secret") if (text := form.text(name)) is not None}
    return await _change(page, WebhookChange.model_validate({**typed, **_terms(form)}))


async def change_status(page: PageContext, form: Form) -> Response:
    """Enable a webhook, or disable it and cancel its pending deliveries."""
    is_active: object = {"on": True, "off": False}.get(form["status"], form["status"])
    return await _change(page, WebhookChange.model_validate({"is_active": is_active}))


async def delete_webhook(page: PageContext, _form: Form) -> Response:
    """Delete a webhook and cancel its pending deliveries."""
    await service.delete_webhook(page.gateway, page.caller, page.environment, page.param("webhook_id"))
    return RedirectResponse(page.url(WEBHOOKS), 303)


async def rotate_secret(page: PageContext, form: Form) -> Response:
    """Replace the signing secret of a webhook and show the new secret, which is never shown again."""

    async def refuse_repetition(session: AsyncSession) -> None:
        found = await repository.get_webhook(session, page.caller, page.environment, page.param("webhook_id"))
        secret = await find_current_secret(session, found.id, SIGNING)
        check_not_repeated(form, secret.id if secret else None)

    made = await service.rotate_webhook_secret(
        page.gateway, page.caller, page.environment, page.param("webhook_id"), first=refuse_repetition
    )
    return await show_webhook(page, made=made)


async def send_test_event(page: PageContext, _form: Form) -> Response:
    """Send a test event to a webhook and redirect to the webhook's deliveries, which show the result."""
    await service.send_test_event(page.gateway, page.caller, page.environment, page.param("webhook_id"))
    return _redirect_to_webhook(page, "deliveries")


async def retry_delivery(page: PageContext, _form: Form) -> Response:
    """Deliver an event to a webhook again and redirect to the webhook's deliveries."""
    delivery = page.param("delivery_id")
    await service.retry_delivery(
        page.gateway, page.caller, page.environment, page.param("webhook_id"), delivery
    )
    return _redirect_to_webhook(page, "deliveries")


async def _change(page: PageContext, change: WebhookChange) -> Response:
    await service.update_webhook(
        page.gateway, page.caller, page.environment, page.param("webhook_id"), change
    )
    return _redirect_to_webhook(page)


async def show_webhook(
    page: PageContext,
    status: int = 200,
    *,
    message: str | None = None,
    typed: Form | None = None,
    made: RotatedSecretView | None = None,
) -> Response:
    """Show the page of one webhook with its deliveries."""
    pagination = read_pagination(page, PAGE_SIZE)
    pagination = replace(pagination, offset=min(pagination.offset, MAX_OFFSET))
    chosen = _STATUSES.get(page.request.query_params.get("status", ""))
    async with page.gateway.database.reading() as session:
        row = await repository.get_webhook(session, page.caller, page.environment, page.param("webhook_id"))
        found = await repository.list_deliveries(session, row, chosen, pagination)
        secret = await find_current_secret(session, row.id, SIGNING)
    one = service.webhook_view(row)
    is_slack = row.kind == SLACK
    return await render_page(
        page,
        "settings/webhook.html",
        status,
        webhook=one,
        is_slack=is_slack,
        takes_all=tuple(one.events) == (APPROVAL_TYPES if is_slack else DEFAULT_TYPES),
        request_url=request_url(page, row.id) if is_slack else None,
        in_plan=has_feature(page.gateway.plans, page.caller.plan),
        kinds=EVENT_TYPES,
        opt_in=OPT_IN_TYPES,
        newest=secret.id if secret else "",
        secret_since=secret and secret.created_at,
        made=made,
        deliveries=found.rows,
        statuses=tuple(_STATUSES),
        chosen=chosen,
        offset=pagination.offset,
        next_offset=pagination.offset + PAGE_SIZE if found.last and pagination.offset < MAX_OFFSET else None,
        message=message,
        typed=typed,
    )


def request_url(page: PageContext, webhook_id: str) -> str:
    """Return the URL to which Slack sends button clicks. Administrators enter it in the settings of the Slack app."""
    public = page.gateway.settings.public_url or str(page.request.base_url)
    return f"{public.rstrip('/')}/integrations/slack/{webhook_id}"


def _redirect_to_webhook(page: PageContext, place: str = "") -> Response:
    return RedirectResponse(
        page.url(f"{WEBHOOKS}/{page.param('webhook_id')}") + (f"#{place}" if place else ""), 303
    )


_ONE = f"{WEBHOOKS}/{{webhook_id}}"

CHANNELS = "/console/settings/slack"
MAX_LINKS = 200


async def connect_channel(page: PageContext, form: Form) -> Response:
    """Connect a Slack channel by its webhook URL and signing secret. The console never shows them again."""
    made = await service.create_webhook(page.gateway, page.caller, page.environment, read_new_channel(form))
    return RedirectResponse(page.url(f"{WEBHOOKS}/{made.id}"), 303)


async def create_link_code(page: PageContext, form: Form) -> Response:
    """Create a code with which the user links a Slack account, and show it. The code is never shown again."""
    made = await slack.create_link_code(page.gateway, page.caller, form["webhook"] or None)
    return await show_slack(page, made=made)


async def remove_link(page: PageContext, _form: Form) -> Response:
    """Remove the link between a Slack account and a user.

    The Slack account can then no longer decide approval requests.
    """
    await slack.delete_link(page.gateway, page.caller, page.param("link_id"))
    return RedirectResponse(page.url(CHANNELS), 303)


async def show_slack(
    page: PageContext,
    status: int = 200,
    *,
    message: str | None = None,
    typed: Form | None = None,
    made: LinkCodeView | None = None,
) -> Response:
    """Show the page with the connected Slack channels, and the links between Slack accounts and users."""
    linked = (await slack.list_links(page.gateway, page.caller))[:MAX_LINKS]
    webhooks = await service.list_webhooks(page.gateway, page.caller, page.environment)
    async with page.gateway.database.reading() as session:
        apps = await signing_secrets(session, page.gateway.vault, page.caller.organization_id)
        people = await load_emails(session, {one.user_id for one in linked})
    return await render_page(
        page,
        "settings/slack.html",
        status,
        channels=[one for one in webhooks if one.kind == SLACK],
        in_plan=has_feature(page.gateway.plans, page.caller.plan),
        mine=[one for one in linked if one.user_id == page.caller.user_id],
        apps=[one.webhook for one in apps],
        is_one_app=all(one.is_same_app(apps[0]) for one in apps),
        others=[one for one in linked if one.user_id != page.caller.user_id],
        people=people,
        made=made,
        message=message,
        typed=typed or Form([]),
    )


ROUTES: Sequence[Route] = (
    page_route(WEBHOOKS, show_webhooks),
    form_route(WEBHOOKS, create_webhook, authorize=require_admin, on_error=show_webhooks, keeps_input=True),
    page_route(_ONE, show_webhook),
    form_route(_ONE, change_webhook, authorize=require_admin, on_error=show_webhook, keeps_input=True),
    form_route(f"{_ONE}/switch", change_status, authorize=require_admin, on_error=show_webhook),
    form_route(f"{_ONE}/delete", delete_webhook, authorize=require_admin),
    form_route(f"{_ONE}/rotate-secret", rotate_secret, authorize=require_admin, on_error=show_webhook),
    form_route(f"{_ONE}/test", send_test_event, authorize=require_admin, on_error=show_webhook),
    form_route(
        f"{_ONE}/deliveries/{{delivery_id}}/retry",
        retry_delivery,
        authorize=require_admin,
        on_error=show_webhook,
    ),
    page_route(CHANNELS, show_slack),
    form_route(CHANNELS, connect_channel, authorize=require_admin, on_error=show_slack, keeps_input=True),
    form_route(f"{CHANNELS}/code", create_link_code, on_error=show_slack),
    form_route(f"{CHANNELS}/links/{{link_id}}/end", remove_link),
)
