"""The inbox's pages, and the forms on its cards."""

from collections.abc import Sequence

from pydantic import ValidationError
from sqlmodel import col, select
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.approvals import desk
from toolgate_service.approvals.finding import find_approval, list_approvals
from toolgate_service.approvals.models import Approval
from toolgate_service.approvals.schemas import DecisionNote
from toolgate_service.approvals.views import views
from toolgate_service.console.forms import Form
from toolgate_service.console.inbox.cards import Card, cards
from toolgate_service.console.inbox.deciding import decision_in
from toolgate_service.console.inbox.news import look, told
from toolgate_service.console.inbox.similar import emails
from toolgate_service.console.inbox.waiting import ON_A_PAGE, waiting
from toolgate_service.console.live import AS_IT_HAPPENS, EVENTS, Live
from toolgate_service.console.paging import offset_of, page_of
from toolgate_service.console.problems import words_of
from toolgate_service.console.rendering import part, show
from toolgate_service.console.safety import HEADERS
from toolgate_service.console.start.finding import has_begun
from toolgate_service.console.visits import Visit, deed, page, visiting
from toolgate_service.console.words import machine
from toolgate_service.errors import ApiError
from toolgate_service.ids import is_id
from toolgate_service.web.streams import Stream

INBOX = "/console/approvals"
DECIDED = ("approved", "consumed", "denied", "expired", "cancelled", "replaced")


async def inbox(visit: Visit) -> Response:
    """Show what waits."""
    offset = offset_of(visit)
    async with visit.gateway.database.reading() as session:
        found = await waiting(session, visit, offset=offset)
        shown = await cards(session, visit, [*found.urgent, *found.newest])
        begun = bool(shown) or await has_begun(session, visit)
    more = len(found.newest) == ON_A_PAGE and offset + len(shown) < len(found.ids)
    return await show(
        visit,
        "inbox.html",
        cards=shown,
        found=found,
        begun=begun,
        offset=offset,
        next_offset=offset + len(found.newest) if more else None,
    )


async def some_cards(visit: Visit) -> Response:
    """Return the cards of some requests, for our own script: new ones, and ones that have changed."""
    ids = [one for one in visit.request.query_params.get("ids", "").split(",") if is_id(one)][:ON_A_PAGE]
    query = select(Approval).where(
        col(Approval.id).in_(ids),
        Approval.organization_id == visit.caller.organization_id,
        Approval.environment == visit.environment,
    )
    async with visit.gateway.database.reading() as session:
        found = (await session.exec(query.order_by(col(Approval.created_at).desc()))).all()
        shown = await cards(session, visit, found, whole=visit.wants_whole)
    return part("part_cards.html", cards=shown, visit=visit)


async def decided(visit: Visit) -> Response:
    """Show what no longer waits, newest first."""
    status = visit.request.query_params.get("status") or None
    if status is not None and status not in DECIDED:
        raise ApiError(400, f"There is no state {status[:40]!r}; there are {', '.join(DECIDED)}")
    async with visit.gateway.database.reading() as session:
        wanted = page_of(visit, 50)
        found = await list_approvals(
            session, visit.caller, visit.environment, wanted, status=status, agent_id=None, action=None
        )
        shown = await views(session, found.rows)
        people = await emails(session, {one.decided_by for one in shown if one.decided_by})
    return await show(
        visit,
        "decided.html",
        approvals=[one for one in shown if one.status != "pending"],
        people=people,
        chosen=status,
        states=DECIDED,
        next_offset=wanted.offset + 50 if found.last else None,
        offset=wanted.offset,
    )


async def one_request(visit: Visit) -> Response:
    """Show one request with everything about it."""
    return await _page_of(visit, await _card(visit))


async def approve(visit: Visit, form: Form) -> Response:
    """Approve as asked, with edits, or for a while."""
    approval_id = visit.request.path_params["approval_id"]
    try:
        decision = decision_in(form)
        await desk.approve(
            visit.gateway, visit.caller, visit.environment, approval_id, decision, shown=form["digest"]
        )
    except (ApiError, ValidationError) as error:
        return await _not_decided(visit, form, error)
    return await _is_decided(visit)


async def deny(visit: Visit, form: Form) -> Response:
    """Deny, perhaps with a note."""
    approval_id = visit.request.path_params["approval_id"]
    try:
        note = DecisionNote(note=form.text("note")).note
        await desk.deny(
            visit.gateway, visit.caller, visit.environment, approval_id, note, shown=form["digest"]
        )
    except (ApiError, ValidationError) as error:
        return await _not_decided(visit, form, error)
    return await _is_decided(visit)


async def events(request: Request) -> Response:
    """Tell an open page what waits, as it changes."""
    visit = await visiting(request)
    live: Live = request.app.state.live
    news = live.news(visit.caller, visit.environment, look, told, announced=True)
    return Stream(news, EVENTS, {**HEADERS, **AS_IT_HAPPENS})


async def shortcuts(visit: Visit) -> Response:
    """Show which keys do what."""
    return await show(visit, "shortcuts.html")


async def _is_decided(visit: Visit) -> Response:
    if not visit.wants_part:
        return RedirectResponse(visit.url(f"{INBOX}/{visit.request.path_params['approval_id']}", done=1), 303)
    return part("part_cards.html", cards=[await _card(visit)], visit=visit)


async def _not_decided(visit: Visit, form: Form, error: ApiError | ValidationError) -> Response:
    """Show the request as it is now, and why nothing was decided."""
    status = error.status_code if isinstance(error, ApiError) else 400
    said = words_of(error)
    try:
        card = await _card(visit)
    except ApiError:
        raise error from None
    if visit.wants_part:
        return part("part_cards.html", status, cards=[card], visit=visit, said=said)
    return await _page_of(visit, card, status, said=said, typed=form["context"])


async def _card(visit: Visit) -> Card:
    async with visit.gateway.database.reading() as session:
        approval = await find_approval(
            session,
            visit.caller.organization_id,
            visit.environment,
            visit.request.path_params["approval_id"],
        )
        [card] = await cards(session, visit, [approval], whole=visit.wants_whole)
    return card


async def _page_of(visit: Visit, card: Card, status: int = 200, **values: str) -> Response:
    done = "done" in visit.request.query_params and not card.waits
    return await show(
        visit,
        "request.html",
        status,
        card=card,
        in_the_log={
            "agent_id": card.approval.agent_id,
            "action": card.approval.action,
            "from": machine(card.approval.created_at),
        },
        done=done,
        said=values.get("said"),
        typed=values.get("typed"),
    )


ROUTES: Sequence[Route] = (
    Route(INBOX, page(inbox), methods=["GET"]),
    Route(f"{INBOX}/cards", page(some_cards), methods=["GET"]),
    Route(f"{INBOX}/decided", page(decided), methods=["GET"]),
    Route(f"{INBOX}/events", events, methods=["GET"]),
    Route(f"{INBOX}/{{approval_id}}", page(one_request), methods=["GET"]),
    Route(f"{INBOX}/{{approval_id}}/approve", deed(approve), methods=["POST"]),
    Route(f"{INBOX}/{{approval_id}}/deny", deed(deny), methods=["POST"]),
    Route("/console/shortcuts", page(shortcuts), methods=["GET"]),
)
