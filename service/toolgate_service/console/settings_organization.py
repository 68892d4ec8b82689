"""Settings pages of the organization: its name, allowed networks and API keys."""

from collections.abc import Sequence

from pydantic import ValidationError
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.console.dependencies import (
    PageContext,
    form_handler,
    page_handler,
    require_admin,
    require_key_reader,
)
from toolgate_service.console.forms import Form, error_message, error_status
from toolgate_service.console.security import check_not_repeated
from toolgate_service.console.templates import render_page
from toolgate_service.core.errors import ApiError
from toolgate_service.logs.retention import TEST_DAYS
from toolgate_service.organizations import keys, service
from toolgate_service.organizations.ip_allowlist import load_networks
from toolgate_service.organizations.schemas import (
    AllowedNetworksChange,
    KeylessOrganizationView,
    OrganizationChange,
)

SETTINGS = "/console/settings"
KEYS = "/console/settings/keys"


async def show_organization(page: PageContext) -> Response:
    """Show the organization's name and allowed networks."""
    return await _render_organization(page)


async def rename_organization(page: PageContext, form: Form) -> Response:
    """Rename the organization."""
    try:
        change = OrganizationChange(name=form["name"])
        await service.rename_organization(page.gateway, page.caller, change.name)
    except (ApiError, ValidationError) as error:
        return await _render_organization(page, error_status(error), message=error_message(error), typed=form)
    return RedirectResponse(page.url(SETTINGS), 303)


async def allow_networks(page: PageContext, form: Form) -> Response:
    """Set the networks from which the organization's API keys may be used. The form contains one network per line."""
    try:
        change = AllowedNetworksChange(networks=form["networks"].split())
        await service.set_allowed_networks(page.gateway, page.caller, change)
    except (ApiError, ValidationError) as error:
        return await _render_organization(page, error_status(error), message=error_message(error), typed=form)
    return RedirectResponse(page.url(SETTINGS), 303)


async def _render_organization(
    page: PageContext, status: int = 200, *, message: str | None = None, typed: Form | None = None
) -> Response:
    async with page.gateway.database.reading() as session:
        found = await service.get_organization(session, page.caller)
    return await render_page(
        page,
        "settings/organization.html",
        status,
        organization=KeylessOrganizationView.model_validate(found, from_attributes=True),
        test_days=TEST_DAYS,
        networks=load_networks(found.ip_allow_list),
        may_allow_networks=page.gateway.plans[found.plan].ip_allow_list,
        address=page.caller.ip_address,
        message=message,
        typed=typed,
    )


async def show_masked_key(page: PageContext) -> Response:
    """Show the organization's API key for the current environment in masked form."""
    return await _render_key(page)


async def show_key(page: PageContext, _form: Form) -> Response:
    """Show the organization's API key in full. The audit log records this."""
    found = await service.show_key(page.gateway, page.caller, page.environment)
    return await _render_key(page, whole=found.api_key)


async def regenerate_key(page: PageContext, form: Form) -> Response:
    """Replace the organization's API key and show the new key. The old key stops working immediately."""

    async def refuse_repetition(session: AsyncSession) -> None:
        old = await keys.organization_key(session, page.caller.organization_id, page.environment)
        check_not_repeated(form, old.id)

    try:
        made = await service.regenerate_key(
            page.gateway, page.caller, page.environment, first=refuse_repetition
        )
    except ApiError as error:
        return await _render_key(page, error_status(error), message=error_message(error))
    return await _render_key(page, whole=made.api_key, replaced=True)


async def _render_key(
    page: PageContext,
    status: int = 200,
    *,
    message: str | None = None,
    whole: str | None = None,
    replaced: bool = False,
) -> Response:
    async with page.gateway.database.reading() as session:
        found = await keys.organization_key(session, page.caller.organization_id, page.environment)
    masked = keys.masked_key(found)
    return await render_page(
        page,
        "settings/keys.html",
        status,
        newest=found.id,
        masked=masked,
        made_at=found.created_at,
        # The key stays masked if the secret that encrypts it is lost. It then cannot be shown in full.
        whole=None if whole == masked else whole,
        unreadable=whole == masked,
        replaced=replaced,
        message=message,
    )


ROUTES: Sequence[Route] = (
    Route(SETTINGS, page_handler(show_organization), methods=["GET"]),
    Route(f"{SETTINGS}/name", form_handler(rename_organization, authorize=require_admin), methods=["POST"]),
    Route(f"{SETTINGS}/networks", form_handler(allow_networks, authorize=require_admin), methods=["POST"]),
    Route(KEYS, page_handler(show_masked_key), methods=["GET"]),
    Route(f"{KEYS}/show", form_handler(show_key, authorize=require_key_reader), methods=["POST"]),
    Route(f"{KEYS}/regenerate", form_handler(regenerate_key, authorize=require_admin), methods=["POST"]),
)
