"""The organization's name, from where its API keys work, and which of its two environments is looked at."""

from collections.abc import Sequence

from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.accounts.caller import acting
from toolgate_service.console.forms import Form
from toolgate_service.console.problems import status_of, words_of
from toolgate_service.console.rendering import show
from toolgate_service.console.visits import Visit, by_admins, deed, page
from toolgate_service.errors import ApiError
from toolgate_service.organizations import service
from toolgate_service.organizations.schemas import (
    AllowedNetworksChange,
    KeylessOrganizationView,
    OrganizationChange,
)
from toolgate_service.upkeep.retention import TEST_DAYS

SETTINGS = "/console/settings"


async def organization(visit: Visit) -> Response:
    """Show it."""
    return await _page(visit)


async def rename(visit: Visit, form: Form) -> Response:
    """Give the organization another name."""
    try:
        change = OrganizationChange(name=form["name"])
        async with acting(visit.gateway, visit.caller) as session:
            await service.rename(session, visit.caller, change.name)
    except (ApiError, ValidationError) as error:
        return await _page(visit, status_of(error), said=words_of(error), typed=form)
    return RedirectResponse(visit.url(SETTINGS), 303)


async def allow_networks(visit: Visit, form: Form) -> Response:
    """Have the organization's API keys work from the networks of the form alone, one a line."""
    try:
        change = AllowedNetworksChange(networks=form["networks"].split())
        async with acting(visit.gateway, visit.caller) as session:
            await service.allow_networks(session, visit.gateway.plans, visit.caller, change)
    except (ApiError, ValidationError) as error:
        return await _page(visit, status_of(error), said=words_of(error), typed=form)
    return RedirectResponse(visit.url(SETTINGS), 303)


async def _page(
    visit: Visit, status: int = 200, *, said: str | None = None, typed: Form | None = None
) -> Response:
    async with visit.gateway.database.reading() as session:
        found = await service.get_organization(session, visit.caller)
        allowed = await service.allowed_networks(session, visit.caller)
    return await show(
        visit,
        "settings/organization.html",
        status,
        organization=KeylessOrganizationView.model_validate(found, from_attributes=True),
        test_days=TEST_DAYS,
        networks=allowed.networks,
        may_allow_networks=visit.gateway.plans[found.plan].ip_allow_list,
        address=visit.caller.ip_address,
        said=said,
        typed=typed,
    )


ROUTES: Sequence[Route] = (
    Route(SETTINGS, page(organization), methods=["GET"]),
    Route(f"{SETTINGS}/name", deed(rename, by=by_admins), methods=["POST"]),
    Route(f"{SETTINGS}/networks", deed(allow_networks, by=by_admins), methods=["POST"]),
)
