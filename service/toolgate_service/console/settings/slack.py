"""Slack: channels that are told of what waits, and which Slack user decides as which member."""

from collections.abc import Sequence

from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.accounts.caller import acting
from toolgate_service.console.forms import Form
from toolgate_service.console.inbox.similar import emails
from toolgate_service.console.problems import status_of, words_of
from toolgate_service.console.rendering import show
from toolgate_service.console.settings.webhook_terms import new_channel_in
from toolgate_service.console.settings.webhooks import WEBHOOKS
from toolgate_service.console.visits import Visit, by_admins, deed, page
from toolgate_service.errors import ApiError
from toolgate_service.slack import links
from toolgate_service.slack.apps import signing_secrets
from toolgate_service.slack.codes import make_code
from toolgate_service.slack.schemas import LinkCodeView, SlackLinkView
from toolgate_service.webhooks import desk, service
from toolgate_service.webhooks.models import SLACK
from toolgate_service.webhooks.outbox import has_feature

CHANNELS = "/console/settings/slack"
#: links of others that an admin's page shows
MOST_LINKS = 200


async def slack(visit: Visit) -> Response:
    """Show it."""
    return await _page(visit)


async def connect(visit: Visit, form: Form) -> Response:
    """Have a channel told; what Slack gave for it is shown nowhere again."""
    try:
        made = await desk.create(visit.gateway, visit.caller, visit.environment, new_channel_in(form))
    except (ApiError, ValidationError) as error:
        return await _page(visit, status_of(error), said=words_of(error), typed=form)
    return RedirectResponse(visit.url(f"{WEBHOOKS}/{made.id}"), 303)


async def code(visit: Visit, form: Form) -> Response:
    """Make a code that links the user's Slack account in one app, and show it this once."""
    try:
        async with acting(visit.gateway, visit.caller) as session:
            made, expires_at = await make_code(
                session, visit.gateway.vault, visit.caller, form["webhook"] or None
            )
    except ApiError as error:
        return await _page(visit, status_of(error), said=words_of(error))
    return await _page(visit, made=LinkCodeView(code=made, expires_at=expires_at))


async def unlink(visit: Visit, _form: Form) -> Response:
    """End a link: what is pressed from then on decides nothing."""
    async with acting(visit.gateway, visit.caller) as session:
        await links.unlink(session, visit.caller, visit.request.path_params["link_id"])
    return RedirectResponse(visit.url(CHANNELS), 303)


def request_url(visit: Visit, webhook_id: str) -> str:
    """Return the address that is entered in Slack, at which it reaches this gateway."""
    public = visit.gateway.settings.public_url or str(visit.request.base_url)
    return f"{public.rstrip('/')}/integrations/slack/{webhook_id}"


async def _page(
    visit: Visit,
    status: int = 200,
    *,
    said: str | None = None,
    typed: Form | None = None,
    made: LinkCodeView | None = None,
) -> Response:
    async with visit.gateway.database.reading() as session:
        webhooks = await service.list_webhooks(session, visit.caller, visit.environment)
        found = (await links.list_links(session, visit.caller))[:MOST_LINKS]
        apps = await signing_secrets(session, visit.gateway.vault, visit.caller.organization_id)
        people = await emails(session, {one.user_id for one in found})
    linked = [SlackLinkView.model_validate(one, from_attributes=True) for one in found]
    return await show(
        visit,
        "settings/slack.html",
        status,
        channels=[service.view(one) for one in webhooks if one.kind == SLACK],
        in_plan=has_feature(visit.gateway.plans, visit.caller.plan),
        mine=[one for one in linked if one.user_id == visit.caller.user_id],
        apps=[one.webhook for one in apps],
        is_one_app=all(one.is_same_app(apps[0]) for one in apps),
        others=[one for one in linked if one.user_id != visit.caller.user_id],
        people=people,
        made=made,
        said=said,
        typed=typed or Form([]),
    )


ROUTES: Sequence[Route] = (
    Route(CHANNELS, page(slack), methods=["GET"]),
    Route(CHANNELS, deed(connect, by=by_admins), methods=["POST"]),
    Route(f"{CHANNELS}/code", deed(code), methods=["POST"]),
    Route(f"{CHANNELS}/links/{{link_id}}/end", deed(unlink), methods=["POST"]),
)
