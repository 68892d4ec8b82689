"""The webhooks of the environment that is looked at, and a new one."""

from collections.abc import Sequence

from pydantic import ValidationError
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.responses import Response
from starlette.routing import Route

from toolgate_service.console.forms import Form
from toolgate_service.console.once import refuse_repeated
from toolgate_service.console.problems import status_of, words_of
from toolgate_service.console.rendering import show
from toolgate_service.console.settings.webhook_terms import new_webhook_in
from toolgate_service.console.visits import Visit, by_admins, deed, page
from toolgate_service.errors import ApiError
from toolgate_service.webhooks import desk, service
from toolgate_service.webhooks.kinds import KINDS, OPT_IN
from toolgate_service.webhooks.outbox import has_feature
from toolgate_service.webhooks.schemas import NewWebhookView, WebhookView

WEBHOOKS = "/console/settings/webhooks"


async def webhooks(visit: Visit) -> Response:
    """List them, newest first."""
    return await _page(visit)


async def create(visit: Visit, form: Form) -> Response:
    """Make one, and show its secret this once."""

    async def refuse_repetition(session: AsyncSession) -> None:
        refuse_repeated(form, newest_of(await list_webhooks(session, visit)))

    try:
        new = new_webhook_in(form)
        made = await desk.create(visit.gateway, visit.caller, visit.environment, new, first=refuse_repetition)
    except (ApiError, ValidationError) as error:
        return await _page(visit, status_of(error), said=words_of(error), typed=form)
    return await _page(visit, made=made)


async def list_webhooks(session: AsyncSession, visit: Visit) -> Sequence[WebhookView]:
    """Return the environment's webhooks, newest first."""
    found = await service.list_webhooks(session, visit.caller, visit.environment)
    return [service.view(one) for one in found]


def newest_of(found: Sequence[WebhookView]) -> str:
    """Return the newest one's id."""
    return found[0].id if found else ""


async def _page(
    visit: Visit,
    status: int = 200,
    *,
    said: str | None = None,
    typed: Form | None = None,
    made: NewWebhookView | None = None,
) -> Response:
    async with visit.gateway.database.reading() as session:
        found = await list_webhooks(session, visit)
    return await show(
        visit,
        "settings/webhooks.html",
        status,
        webhooks=found,
        newest=newest_of(found),
        in_plan=has_feature(visit.gateway.plans, visit.caller.plan),
        kinds=KINDS,
        opt_in=OPT_IN,
        made=made,
        said=said,
        typed=typed or Form([]),
    )


ROUTES: Sequence[Route] = (
    Route(WEBHOOKS, page(webhooks), methods=["GET"]),
    Route(WEBHOOKS, deed(create, by=by_admins), methods=["POST"]),
)
