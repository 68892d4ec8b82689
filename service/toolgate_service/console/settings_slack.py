"""Settings page of Slack: channels for approval requests, and links between Slack users and members."""

from collections.abc import Sequence

from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.accounts.sessions import transaction_as
from toolgate_service.console.dependencies import PageContext, form_handler, page_handler, require_admin
from toolgate_service.console.forms import Form, error_message, error_status
from toolgate_service.console.queries import load_emails
from toolgate_service.console.settings_webhooks import WEBHOOKS, read_new_channel
from toolgate_service.console.templates import render_page
from toolgate_service.core.errors import ApiError
from toolgate_service.slack import links
from toolgate_service.slack.apps import signing_secrets
from toolgate_service.slack.link_codes import create_code
from toolgate_service.slack.schemas import LinkCodeView, SlackLinkView
from toolgate_service.webhooks import repository, service
from toolgate_service.webhooks.events import has_feature
from toolgate_service.webhooks.models import SLACK

CHANNELS = "/console/settings/slack"
MAX_LINKS = 200


async def show_slack(page: PageContext) -> Response:
    """Show the Slack channels and the links between Slack users and members."""
    return await _render_slack(page)


async def connect_channel(page: PageContext, form: Form) -> Response:
    """Connect a Slack channel. The console never shows the channel's URL and secret again."""
    try:
        made = await service.create_webhook(
            page.gateway, page.caller, page.environment, read_new_channel(form)
        )
    except (ApiError, ValidationError) as error:
        return await _render_slack(page, error_status(error), message=error_message(error), typed=form)
    return RedirectResponse(page.url(f"{WEBHOOKS}/{made.id}"), 303)


async def create_link_code(page: PageContext, form: Form) -> Response:
    """Create a code with which the user links a Slack account, and show the code. It is shown only this once."""
    try:
        async with transaction_as(page.gateway, page.caller) as session:
            made, expires_at = await create_code(
                session, page.gateway.vault, page.caller, form["webhook"] or None
            )
    except ApiError as error:
        return await _render_slack(page, error_status(error), message=error_message(error))
    return await _render_slack(page, made=LinkCodeView(code=made, expires_at=expires_at))


async def remove_link(page: PageContext, _form: Form) -> Response:
    """Remove the link of a Slack user, who can then no longer decide approval requests in Slack."""
    async with transaction_as(page.gateway, page.caller) as session:
        await links.unlink(session, page.caller, page.request.path_params["link_id"])
    return RedirectResponse(page.url(CHANNELS), 303)


async def _render_slack(
    page: PageContext,
    status: int = 200,
    *,
    message: str | None = None,
    typed: Form | None = None,
    made: LinkCodeView | None = None,
) -> Response:
    async with page.gateway.database.reading() as session:
        webhooks = await repository.list_webhooks(session, page.caller, page.environment)
        found = (await links.list_links(session, page.caller))[:MAX_LINKS]
        apps = await signing_secrets(session, page.gateway.vault, page.caller.organization_id)
        people = await load_emails(session, {one.user_id for one in found})
    linked = [SlackLinkView.model_validate(one, from_attributes=True) for one in found]
    return await render_page(
        page,
        "settings/slack.html",
        status,
        channels=[service.webhook_view(one) for one in webhooks if one.kind == SLACK],
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
    Route(CHANNELS, page_handler(show_slack), methods=["GET"]),
    Route(CHANNELS, form_handler(connect_channel, authorize=require_admin), methods=["POST"]),
    Route(f"{CHANNELS}/code", form_handler(create_link_code), methods=["POST"]),
    Route(f"{CHANNELS}/links/{{link_id}}/end", form_handler(remove_link), methods=["POST"]),
)
