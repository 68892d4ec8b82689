"""Console page that lists, creates and lifts freezes."""

from collections.abc import Sequence

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.agents.models import Agent
from toolgate_service.console.dependencies import Form, PageContext, form_route, page_route, require_admin
from toolgate_service.console.queries import load_emails
from toolgate_service.console.templates import first_page, read_pagination, render_page
from toolgate_service.freezes import service
from toolgate_service.freezes.schemas import NewFreeze
from toolgate_service.logs.repository import agent_names

FREEZES = "/console/freezes"
#: Maximum number of active freezes that the page shows.
MAX_ACTIVE = 100
#: Maximum number of lifted freezes on one page.
PAGE_SIZE = 25
#: Maximum number of agents that the form offers. The API accepts every agent.
MAX_AGENTS = 200


async def show_freezes(
    page: PageContext, status: int = 200, *, message: str | None = None, typed: Form | None = None
) -> Response:
    """Render the freezes page: a form that creates a freeze, and the active and the lifted freezes, newest first."""
    pagination = read_pagination(page, PAGE_SIZE)
    async with page.gateway.database.reading() as session:
        active = await service.list_freezes(session, page.caller, first_page(page, MAX_ACTIVE), active=True)
        lifted = await service.list_freezes(session, page.caller, pagination, active=False)
        shown = [*active.rows, *lifted.rows]
        people = {one for freeze in shown for one in (freeze.created_by, freeze.lifted_by) if one}
        emails = await load_emails(session, people)
        names = await agent_names(session, {freeze.agent_id for freeze in shown if freeze.agent_id})
        agents = await _list_agents(session, page)
    return await render_page(
        page,
        "freezes.html",
        status,
        is_shared=True,
        active=active.rows,
        lifted=lifted.rows,
        emails=emails,
        names=names,
        agents=agents,
        message=message,
        typed=typed or Form([]),
        offset=pagination.offset,
        next_offset=pagination.offset + PAGE_SIZE if lifted.last else None,
    )


async def _list_agents(session: AsyncSession, page: PageContext) -> Sequence[Agent]:
    """Return the newest agents of both environments."""
    query = (
        select(Agent)
        .where(Agent.organization_id == page.caller.organization_id, col(Agent.deleted_at).is_(None))
        .order_by(col(Agent.created_at).desc())
        .limit(MAX_AGENTS)
    )
    return (await session.exec(query)).all()


async def create_freeze(page: PageContext, form: Form) -> Response:
    """Freeze the calls that the form describes."""
    new = NewFreeze.model_validate(
        {"agent_id": form.text("agent_id"), "action": form.text("action"), "reason": form["reason"]}
    )
    await service.create_freeze(page.gateway, page.caller, new)
    return RedirectResponse(page.url(FREEZES), 303)


async def lift_freeze(page: PageContext, _form: Form) -> Response:
    """Lift a freeze."""
    await service.lift_freeze(page.gateway, page.caller, page.param("freeze_id"))
    return RedirectResponse(page.url(FREEZES), 303)


ROUTES: Sequence[Route] = (
    page_route(FREEZES, show_freezes),
    form_route(FREEZES, create_freeze, on_error=show_freezes, keeps_input=True),
    form_route(f"{FREEZES}/{{freeze_id}}/lift", lift_freeze, authorize=require_admin),
)
