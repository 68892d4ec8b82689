"""One webhook: its terms, its secret, and what became of each event for it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pydantic import ValidationError
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.console.forms import Form
from toolgate_service.console.once import refuse_repeated
from toolgate_service.console.paging import page_of
from toolgate_service.console.problems import status_of, words_of
from toolgate_service.console.rendering import show
from toolgate_service.console.settings.slack import request_url
from toolgate_service.console.settings.webhook_terms import switch_in, webhook_change_in
from toolgate_service.console.settings.webhooks import WEBHOOKS
from toolgate_service.console.visits import Visit, by_admins, deed, page
from toolgate_service.errors import ApiError
from toolgate_service.webhooks import deliveries, desk, service
from toolgate_service.webhooks.kinds import ABOUT_APPROVALS, DEFAULT, KINDS, OPT_IN
from toolgate_service.webhooks.models import DELIVERED, FAILED, PENDING, SLACK
from toolgate_service.webhooks.outbox import has_feature
from toolgate_service.webhooks.schemas import DeliveryStatus, RotatedSecretView, WebhookChange
from toolgate_service.webhooks.secrets import newest_secret

ON_A_PAGE = 25
#: deliveries beyond these are skipped one by one, which takes its time: they are left to the API's cursor
MOST_SKIPPED = 5_000
_STATUSES: dict[str, DeliveryStatus] = {PENDING: "pending", DELIVERED: "delivered", FAILED: "failed"}


async def webhook(visit: Visit) -> Response:
    """Show it."""
    return await _page(visit)


async def change(visit: Visit, form: Form) -> Response:
    """Change its terms."""
    return await _changed(visit, form, lambda: webhook_change_in(form))


async def switch(visit: Visit, form: Form) -> Response:
    """Switch it off, which ends what was on its way, or on again."""
    return await _changed(visit, None, lambda: switch_in(form))


async def delete(visit: Visit, _form: Form) -> Response:
    """Delete it; what is on its way to it ends."""
    await desk.delete(visit.gateway, visit.caller, visit.environment, _id(visit))
    return RedirectResponse(visit.url(WEBHOOKS), 303)


async def rotate(visit: Visit, form: Form) -> Response:
    """Make a new secret, and show it this once."""

    async def refuse_repetition(session: AsyncSession) -> None:
        found = await service.get_webhook(session, visit.caller, visit.environment, _id(visit))
        secret = await newest_secret(session, found)
        refuse_repeated(form, secret.id if secret else None)

    try:
        made = await desk.rotate(
            visit.gateway, visit.caller, visit.environment, _id(visit), first=refuse_repetition
        )
    except ApiError as error:
        return await _page(visit, status_of(error), said=words_of(error))
    return await _page(visit, made=made)


async def try_out(visit: Visit, _form: Form) -> Response:
    """Have an event delivered to it that says nothing; the list of deliveries tells what came of it."""
    try:
        await desk.try_out(visit.gateway, visit.caller, visit.environment, _id(visit))
    except ApiError as error:
        return await _page(visit, status_of(error), said=words_of(error))
    return _back(visit, "deliveries")


async def retry(visit: Visit, _form: Form) -> Response:
    """Deliver once more."""
    delivery = visit.request.path_params["delivery_id"]
    try:
        await desk.retry(visit.gateway, visit.caller, visit.environment, _id(visit), delivery)
    except ApiError as error:
        return await _page(visit, status_of(error), said=words_of(error))
    return _back(visit, "deliveries")


async def _changed(visit: Visit, typed: Form | None, read: Callable[[], WebhookChange]) -> Response:
    try:
        await desk.change(visit.gateway, visit.caller, visit.environment, _id(visit), read())
    except (ApiError, ValidationError) as error:
        return await _page(visit, status_of(error), said=words_of(error), typed=typed)
    return _back(visit)


async def _page(
    visit: Visit,
    status: int = 200,
    *,
    said: str | None = None,
    typed: Form | None = None,
    made: RotatedSecretView | None = None,
) -> Response:
    wanted = page_of(visit, ON_A_PAGE)
    wanted = replace(wanted, offset=min(wanted.offset, MOST_SKIPPED))
    chosen = _STATUSES.get(visit.request.query_params.get("status", ""))
    async with visit.gateway.database.reading() as session:
        row = await service.get_webhook(session, visit.caller, visit.environment, _id(visit))
        found = await deliveries.list_deliveries(session, row, chosen, wanted)
        secret = await newest_secret(session, row)
    one = service.view(row)
    is_slack = row.kind == SLACK
    return await show(
        visit,
        "settings/webhook.html",
        status,
        webhook=one,
        is_slack=is_slack,
        takes_all=tuple(one.events) == (ABOUT_APPROVALS if is_slack else DEFAULT),
        request_url=request_url(visit, row.id) if is_slack else None,
        in_plan=has_feature(visit.gateway.plans, visit.caller.plan),
        kinds=KINDS,
        opt_in=OPT_IN,
        newest=secret.id if secret else "",
        secret_since=secret and secret.created_at,
        made=made,
        deliveries=found.rows,
        statuses=tuple(_STATUSES),
        chosen=chosen,
        offset=wanted.offset,
        next_offset=wanted.offset + ON_A_PAGE if found.last and wanted.offset < MOST_SKIPPED else None,
        said=said,
        typed=typed,
    )


def _id(visit: Visit) -> str:
    webhook_id: str = visit.request.path_params["webhook_id"]
    return webhook_id


def _back(visit: Visit, place: str = "") -> Response:
    return RedirectResponse(visit.url(f"{WEBHOOKS}/{_id(visit)}") + (f"#{place}" if place else ""), 303)


_ONE = f"{WEBHOOKS}/{{webhook_id}}"

ROUTES: Sequence[Route] = (
    Route(_ONE, page(webhook), methods=["GET"]),
    Route(_ONE, deed(change, by=by_admins), methods=["POST"]),
    Route(f"{_ONE}/switch", deed(switch, by=by_admins), methods=["POST"]),
    Route(f"{_ONE}/delete", deed(delete, by=by_admins), methods=["POST"]),
    Route(f"{_ONE}/rotate-secret", deed(rotate, by=by_admins), methods=["POST"]),
    Route(f"{_ONE}/test", deed(try_out, by=by_admins), methods=["POST"]),
    Route(f"{_ONE}/deliveries/{{delivery_id}}/retry", deed(retry, by=by_admins), methods=["POST"]),
)
