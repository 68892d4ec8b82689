"""Settings pages of webhooks, their secrets and their deliveries."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pydantic import ValidationError
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.console.dependencies import PageContext, form_handler, page_handler, require_admin
from toolgate_service.console.forms import Form, error_message, error_status
from toolgate_service.console.security import check_not_repeated
from toolgate_service.console.templates import read_pagination, render_page
from toolgate_service.core.errors import ApiError
from toolgate_service.webhooks import repository, service
from toolgate_service.webhooks.events import (
    APPROVAL_TYPES,
    DEFAULT_TYPES,
    EVENT_TYPES,
    OPT_IN_TYPES,
    has_feature,
)
from toolgate_service.webhooks.models import DELIVERED, FAILED, PENDING, SIGNING, SLACK, STANDARD
from toolgate_service.webhooks.schemas import (
    DeliveryStatus,
    NewWebhook,
    NewWebhookView,
    RotatedSecretView,
    WebhookChange,
    WebhookView,
)
from toolgate_service.webhooks.secrets import find_current_secret

WEBHOOKS = "/console/settings/webhooks"
PAGE_SIZE = 25
#: Maximum offset in the list of deliveries, because the database reads every skipped row. The API, which uses cursors,
#: can list further deliveries.
MAX_OFFSET = 5_000
_STATUSES: dict[str, DeliveryStatus] = {PENDING: "pending", DELIVERED: "delivered", FAILED: "failed"}


def read_new_webhook(form: Form) -> NewWebhook:
    """Convert a submitted form to a new webhook.

    Raises:
        ValidationError: The values violate the API's schema.
    """
    return NewWebhook.model_validate({"kind": STANDARD, "url": form["url"].strip(), **_terms(form)})


def read_new_channel(form: Form) -> NewWebhook:
    """Convert a submitted form to a new webhook for a Slack channel.

    Raises:
        ValidationError: The values violate the API's schema.
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


def read_webhook_change(form: Form) -> WebhookChange:
    """Convert a submitted form to a change of a webhook.

    An empty field leaves the URL or the secret unchanged: the page never shows those of a Slack channel.

    Raises:
        ValidationError: The values violate the API's schema.
    """
    typed = {name: text for name in ("url", "signing_secret") if (text := form.text(name)) is not None}
    return WebhookChange.model_validate({**typed, **_terms(form)})


def read_status_change(form: Form) -> WebhookChange:
    """Convert a submitted form to a change that enables or disables a webhook.

    Raises:
        ValidationError: The form's status is neither ``on`` nor ``off``.
    """
    pagination: object = {"on": True, "off": False}.get(form["status"], form["status"])
    return WebhookChange.model_validate({"is_active": pagination})


def _terms(form: Form) -> dict[str, object]:
    # Browsers do not submit unchecked checkboxes, so a missing field means that the checkbox is unchecked.
    return {
        "description": form.text("description"),
        "events": form.all("events") if form["which"] == "some" else None,
        "include_context": "include_context" in form,
    }


async def show_webhooks(page: PageContext) -> Response:
    """Show the list of webhooks, newest first."""
    return await _render_webhooks(page)


async def create_webhook(page: PageContext, form: Form) -> Response:
    """Create a webhook and show its secret. The secret is shown only this once."""

    async def refuse_repetition(session: AsyncSession) -> None:
        check_not_repeated(form, _newest_id(await _list_webhooks(session, page)))

    try:
        new = read_new_webhook(form)
        made = await service.create_webhook(
            page.gateway, page.caller, page.environment, new, first=refuse_repetition
        )
    except (ApiError, ValidationError) as error:
        return await _render_webhooks(page, error_status(error), message=error_message(error), typed=form)
    return await _render_webhooks(page, made=made)


async def _list_webhooks(session: AsyncSession, page: PageContext) -> Sequence[WebhookView]:
    found = await repository.list_webhooks(session, page.caller, page.environment)
    return [service.webhook_view(one) for one in found]


def _newest_id(found: Sequence[WebhookView]) -> str:
    return found[0].id if found else ""


async def _render_webhooks(
    page: PageContext,
    status: int = 200,
    *,
    message: str | None = None,
    typed: Form | None = None,
    made: NewWebhookView | None = None,
) -> Response:
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


async def show_webhook(page: PageContext) -> Response:
    """Show a webhook with its deliveries."""
    return await _render_webhook(page)


async def change_webhook(page: PageContext, form: Form) -> Response:
    """Change the settings of a webhook, such as its URL and events."""
    return await _apply_change(page, form, lambda: read_webhook_change(form))


async def change_status(page: PageContext, form: Form) -> Response:
    """Enable a webhook, or disable it and cancel its pending deliveries."""
    return await _apply_change(page, None, lambda: read_status_change(form))


async def delete_webhook(page: PageContext, _form: Form) -> Response:
    """Delete a webhook and cancel its pending deliveries."""
    await service.delete_webhook(page.gateway, page.caller, page.environment, _webhook_id(page))
    return RedirectResponse(page.url(WEBHOOKS), 303)


async def rotate_secret(page: PageContext, form: Form) -> Response:
    """Replace a webhook's secret and show the new secret. The secret is shown only this once."""

    async def refuse_repetition(session: AsyncSession) -> None:
        found = await repository.get_webhook(session, page.caller, page.environment, _webhook_id(page))
        secret = await find_current_secret(session, found.id, SIGNING)
        check_not_repeated(form, secret.id if secret else None)

    try:
        made = await service.rotate_webhook_secret(
            page.gateway, page.caller, page.environment, _webhook_id(page), first=refuse_repetition
        )
    except ApiError as error:
        return await _render_webhook(page, error_status(error), message=error_message(error))
    return await _render_webhook(page, made=made)


async def send_test_event(page: PageContext, _form: Form) -> Response:
    """Send a test event to a webhook and redirect to the list of deliveries, which shows the result."""
    try:
        await service.send_test_event(page.gateway, page.caller, page.environment, _webhook_id(page))
    except ApiError as error:
        return await _render_webhook(page, error_status(error), message=error_message(error))
    return _redirect_to_webhook(page, "deliveries")


async def retry_delivery(page: PageContext, _form: Form) -> Response:
    """Retry the delivery of an event and redirect to the list of deliveries."""
    delivery = page.request.path_params["delivery_id"]
    try:
        await service.retry_delivery(page.gateway, page.caller, page.environment, _webhook_id(page), delivery)
    except ApiError as error:
        return await _render_webhook(page, error_status(error), message=error_message(error))
    return _redirect_to_webhook(page, "deliveries")


async def _apply_change(page: PageContext, typed: Form | None, read: Callable[[], WebhookChange]) -> Response:
    try:
        await service.update_webhook(page.gateway, page.caller, page.environment, _webhook_id(page), read())
    except (ApiError, ValidationError) as error:
        return await _render_webhook(page, error_status(error), message=error_message(error), typed=typed)
    return _redirect_to_webhook(page)


async def _render_webhook(
    page: PageContext,
    status: int = 200,
    *,
    message: str | None = None,
    typed: Form | None = None,
    made: RotatedSecretView | None = None,
) -> Response:
    pagination = read_pagination(page, PAGE_SIZE)
    pagination = replace(pagination, offset=min(pagination.offset, MAX_OFFSET))
    chosen = _STATUSES.get(page.request.query_params.get("status", ""))
    async with page.gateway.database.reading() as session:
        row = await repository.get_webhook(session, page.caller, page.environment, _webhook_id(page))
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
    """Return the request URL that an administrator enters in the Slack app, so that Slack sends interactions to it."""
    public = page.gateway.settings.public_url or str(page.request.base_url)
    return f"{public.rstrip('/')}/integrations/slack/{webhook_id}"


def _webhook_id(page: PageContext) -> str:
    webhook_id: str = page.request.path_params["webhook_id"]
    return webhook_id


def _redirect_to_webhook(page: PageContext, place: str = "") -> Response:
    return RedirectResponse(page.url(f"{WEBHOOKS}/{_webhook_id(page)}") + (f"#{place}" if place else ""), 303)


_ONE = f"{WEBHOOKS}/{{webhook_id}}"

ROUTES: Sequence[Route] = (
    Route(WEBHOOKS, page_handler(show_webhooks), methods=["GET"]),
    Route(WEBHOOKS, form_handler(create_webhook, authorize=require_admin), methods=["POST"]),
    Route(_ONE, page_handler(show_webhook), methods=["GET"]),
    Route(_ONE, form_handler(change_webhook, authorize=require_admin), methods=["POST"]),
    Route(f"{_ONE}/switch", form_handler(change_status, authorize=require_admin), methods=["POST"]),
    Route(f"{_ONE}/delete", form_handler(delete_webhook, authorize=require_admin), methods=["POST"]),
    Route(f"{_ONE}/rotate-secret", form_handler(rotate_secret, authorize=require_admin), methods=["POST"]),
    Route(f"{_ONE}/test", form_handler(send_test_event, authorize=require_admin), methods=["POST"]),
    Route(
        f"{_ONE}/deliveries/{{delivery_id}}/retry",
        form_handler(retry_delivery, authorize=require_admin),
        methods=["POST"],
    ),
)
