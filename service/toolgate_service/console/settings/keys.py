"""The organization's key to the environment that is looked at: shown when it is asked for, and replaced."""

from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import Route

from toolgate_service.accounts.caller import acting
from toolgate_service.console.forms import Form
from toolgate_service.console.once import refuse_repeated
from toolgate_service.console.problems import status_of, words_of
from toolgate_service.console.rendering import show
from toolgate_service.console.visits import Visit, by_admins, by_key_readers, deed, page
from toolgate_service.errors import ApiError
from toolgate_service.organizations import keys, service

KEYS = "/console/settings/keys"


async def key(visit: Visit) -> Response:
    """Show the key masked."""
    return await _page(visit)


async def show_key(visit: Visit, _form: Form) -> Response:
    """Show the key whole, which is audited."""
    async with acting(visit.gateway, visit.caller, reads=True) as session:
        found = await service.key_view(session, visit.gateway.vault, visit.caller, visit.environment)
    return await _page(visit, whole=found.api_key)


async def regenerate(visit: Visit, form: Form) -> Response:
    """Replace the key, and show the new one; the old one stops working at once."""
    try:
        async with acting(visit.gateway, visit.caller) as session:
            old = await keys.organization_key(session, visit.caller.organization_id, visit.environment)
            refuse_repeated(form, old.id)
            made = await service.regenerate_key(session, visit.gateway.vault, visit.caller, visit.environment)
    except ApiError as error:
        return await _page(visit, status_of(error), said=words_of(error))
    return await _page(visit, whole=made.api_key, replaced=True)


async def _page(
    visit: Visit,
    status: int = 200,
    *,
    said: str | None = None,
    whole: str | None = None,
    replaced: bool = False,
) -> Response:
    async with visit.gateway.database.reading() as session:
        found = await keys.organization_key(session, visit.caller.organization_id, visit.environment)
    masked = keys.masked_key(found)
    return await show(
        visit,
        "settings/keys.html",
        status,
        newest=found.id,
        masked=masked,
        made_at=found.created_at,
        # What was sealed under a secret that is gone cannot be shown.
        whole=None if whole == masked else whole,
        unreadable=whole == masked,
        replaced=replaced,
        said=said,
    )


ROUTES: Sequence[Route] = (
    Route(KEYS, page(key), methods=["GET"]),
    Route(f"{KEYS}/show", deed(show_key, by=by_key_readers), methods=["POST"]),
    Route(f"{KEYS}/regenerate", deed(regenerate, by=by_admins), methods=["POST"]),
)
