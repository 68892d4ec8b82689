"""Console pages that list and decide approval requests, and that list temporary approvals (`grants` in the API)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import ValidationError
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.approvals import service as approvals
from toolgate_service.approvals.models import Approval
from toolgate_service.approvals.repository import find_approval, list_approvals
from toolgate_service.approvals.schemas import ApprovalDecision, DecisionNote, GrantTerms, serialize_approvals
from toolgate_service.console.dependencies import (
    Form,
    PageContext,
    error_message,
    form_route,
    load_page_context,
    page_route,
)
from toolgate_service.console.filters import MAX_CARD_LENGTH, describe_action, lay_out, machine
from toolgate_service.console.inbox_cards import Card, load_cards
from toolgate_service.console.queries import (
    COUNT_LIMIT,
    PAGE_SIZE,
    count_votes,
    list_pending,
    list_pending_ids,
    list_with_waiting_call,
    load_emails,
)
from toolgate_service.console.security import HEADERS
from toolgate_service.console.start import has_begun
from toolgate_service.console.streams import EVENT_STREAM, STREAM_HEADERS, EventStreams, format_event
from toolgate_service.console.templates import read_offset, read_pagination, render_page, render_partial
from toolgate_service.core.errors import ApiError, FieldErrors
from toolgate_service.core.ids import is_id
from toolgate_service.core.strict_json import dumps, read_object
from toolgate_service.grants import repository, service
from toolgate_service.grants.schemas import serialize_grants
from toolgate_service.http.responses import Stream

INBOX = "/console/approvals"
DECIDED = ("approved", "consumed", "denied", "expired", "cancelled", "replaced")


def read_decision(form: Form) -> ApprovalDecision:
    """Parse the form that approves an approval request.

    In this form, the approver can edit the arguments, or give a temporary approval that covers further matching calls.

    Raises:
        ApiError: 400 if the edited arguments are not a JSON object, or a limit of the temporary approval is not a
            number.
        ValidationError: A value is outside the range that the API allows.
    """
    context = read_object(form["context"].encode()) if "context" in form else None
    grant = None
    if "uses" in form:
        grant = GrantTerms(
            max_uses=_number(form, "uses"),
            duration_seconds=_number(form, "seconds"),
            ignored_fields=form.all("except_fields"),
        )
    return ApprovalDecision(note=form.text("note"), context=context, grant=grant)


def _number(form: Form, name: str) -> int:
    text = form[name].strip()
    if not (text.isascii() and text.isdigit() and len(text) < len("1000000000")):
        raise FieldErrors({name: ["must be a whole number"]})
    return int(text)


class PendingState(NamedTuple):
    """State of an environment's pending approval requests, which the gateway sends to open console pages.

    Attributes:
        ids: Ids of the pending requests, newest first.
        votes: Number of approvals so far, by request id. A request may need approvals from several people.
        with_call: Ids of the requests for which an agent is connected and waits for the decision.
    """

    ids: Sequence[str]
    votes: Mapping[str, int]
    with_call: Sequence[str]


async def poll_pending(session: AsyncSession, organization_id: str, environment: str) -> PendingState:
    """Read the pending approval requests of one environment from the database."""
    ids = await list_pending_ids(session, organization_id, environment)
    return PendingState(ids, await count_votes(session, ids), await list_with_waiting_call(session, ids))


async def make_pending_event(state: PendingState) -> bytes:
    """Return the server-sent event with which open console pages update their list of pending approval requests."""
    more = len(state.ids) > COUNT_LIMIT
    data = {
        "count": min(len(state.ids), COUNT_LIMIT),
        "more": more,
        "ids": list(state.ids[:COUNT_LIMIT]),
        "votes": dict(state.votes),
        "with_call": list(state.with_call),
    }
    return format_event("waiting", data)


async def show_inbox(page: PageContext) -> Response:
    """Show the inbox: the page that lists the pending approval requests."""
    offset = read_offset(page)
    async with page.gateway.database.reading() as session:
        found = await list_pending(session, page, offset=offset)
        shown = await load_cards(session, page, [*found.urgent, *found.newest])
        begun = bool(shown) or await has_begun(session, page)
    more = len(found.newest) == PAGE_SIZE and offset + len(shown) < len(found.ids)
    return await render_page(
        page,
        "inbox.html",
        cards=shown,
        found=found,
        begun=begun,
        offset=offset,
        next_offset=offset + len(found.newest) if more else None,
    )


async def show_cards(page: PageContext) -> Response:
    """Return an HTML fragment with the cards of the approval requests in the query parameter ``ids``.

    The script of the inbox inserts the cards into the page, and replaces outdated cards.
    """
    ids = [one for one in page.request.query_params.get("ids", "").split(",") if is_id(one)][:PAGE_SIZE]
    query = select(Approval).where(
        col(Approval.id).in_(ids),
        Approval.organization_id == page.caller.organization_id,
        Approval.environment == page.environment,
    )
    async with page.gateway.database.reading() as session:
        found = (await session.exec(query.order_by(col(Approval.created_at).desc()))).all()
        shown = await load_cards(session, page, found, whole=page.wants_whole)
    return render_partial("part_cards.html", cards=shown, page=page)


async def show_decided(page: PageContext) -> Response:
    """Show the page that lists approval requests that are no longer pending, newest first."""
    status = page.request.query_params.get("status") or None
    if status is not None and status not in DECIDED:
        raise ApiError(400, f"Unknown state {status[:40]!r}: expected one of {', '.join(DECIDED)}")
    async with page.gateway.database.reading() as session:
        pagination = read_pagination(page, 50)
        found = await list_approvals(
            session, page.caller, page.environment, pagination, status=status, agent_id=None, action=None
        )
        shown = await serialize_approvals(session, found.rows)
        people = await load_emails(session, {one.decided_by for one in shown if one.decided_by})
    return await render_page(
        page,
        "decided.html",
        approvals=[one for one in shown if one.status != "pending"],
        people=people,
        chosen=status,
        states=DECIDED,
        next_offset=pagination.offset + 50 if found.last else None,
        offset=pagination.offset,
    )


async def show_request(page: PageContext) -> Response:
    """Show the page of one approval request with all its arguments."""
    return await _render_request(page, await _load_card(page))


async def approve(page: PageContext, form: Form) -> Response:
    """Approve an approval request. The form may contain edited arguments or the limits of a temporary approval."""
    approval_id = page.param("approval_id")
    try:
        decision = read_decision(form)
        await approvals.approve(
            page.gateway, page.caller, page.environment, approval_id, decision, shown=form["digest"]
        )
    except (ApiError, ValidationError) as error:
        return await _render_refused(page, form, error)
    return await _render_decided(page)


async def deny(page: PageContext, form: Form) -> Response:
    """Reject an approval request. The form may contain a note for the agent."""
    approval_id = page.param("approval_id")
    try:
        note = DecisionNote(note=form.text("note")).note
        await approvals.deny(
            page.gateway, page.caller, page.environment, approval_id, note, shown=form["digest"]
        )
    except (ApiError, ValidationError) as error:
        return await _render_refused(page, form, error)
    return await _render_decided(page)


async def stream_events(request: Request) -> Response:
    """Send changes of the pending approval requests to an open page, as a stream of server-sent events."""
    page = await load_page_context(request)
    live: EventStreams = request.app.state.live
    events = live.subscribe(page.caller, page.environment, poll_pending, make_pending_event, announced=True)
    return Stream(events, EVENT_STREAM, {**HEADERS, **STREAM_HEADERS})


async def show_shortcuts(page: PageContext) -> Response:
    """Show the page that explains the keyboard shortcuts."""
    return await render_page(page, "shortcuts.html")


async def _render_decided(page: PageContext) -> Response:
    if not page.wants_part:
        return RedirectResponse(page.url(f"{INBOX}/{page.request.path_params['approval_id']}", done=1), 303)
    return render_partial("part_cards.html", cards=[await _load_card(page)], page=page)


async def _render_refused(page: PageContext, form: Form, error: ApiError | ValidationError) -> Response:
    """Show the approval request in its current state, with the reason why the user's decision was not accepted."""
    status = error.status_code if isinstance(error, ApiError) else 400
    message = error_message(error)
    try:
        card = await _load_card(page)
    except ApiError:
        raise error from None
    if page.wants_part:
        return render_partial("part_cards.html", status, cards=[card], page=page, message=message)
    return await _render_request(page, card, status, message=message, typed=form["context"])


async def _load_card(page: PageContext) -> Card:
    async with page.gateway.database.reading() as session:
        approval = await find_approval(
            session,
            page.caller.organization_id,
            page.environment,
            page.param("approval_id"),
        )
        [card] = await load_cards(session, page, [approval], whole=page.wants_whole)
    return card


async def _render_request(page: PageContext, card: Card, status: int = 200, **values: str) -> Response:
    done = "done" in page.request.query_params and not card.is_pending
    return await render_page(
        page,
        "request.html",
        status,
        card=card,
        in_the_log={
            "agent_id": card.approval.agent_id,
            "action": card.approval.action,
            "from": machine(card.approval.created_at),
        },
        done=done,
        message=values.get("message"),
        typed=values.get("typed"),
    )


GRANTS = "/console/grants"
GRANTS_PAGE_SIZE = 20


async def show_grants(page: PageContext) -> Response:
    """Show the page that lists temporary approvals, newest first."""
    pagination = read_pagination(page, GRANTS_PAGE_SIZE)
    async with page.gateway.database.reading() as session:
        found = await repository.list_grants(
            session, page.caller, page.environment, pagination, status=None, agent_id=None
        )
        views = await serialize_grants(session, found.rows)
    shown = [
        (
            view,
            describe_action(view.action),
            lay_out(view.context, len(dumps(view.context)), at_most=MAX_CARD_LENGTH),
        )
        for view in views
    ]
    return await render_page(
        page,
        "grants.html",
        grants=shown,
        offset=pagination.offset,
        next_offset=pagination.offset + GRANTS_PAGE_SIZE if found.last else None,
    )


async def revoke_grant(page: PageContext, form: Form) -> Response:
    """Revoke a temporary approval.

    The browser is redirected to the page that contained the form: the list of temporary approvals or the agent's page.
    """
    grant_id = page.param("grant_id")
    ended = await service.revoke(page.gateway, page.caller, page.environment, grant_id)
    then = f"/console/agents/{ended.agent_id}" if "then" in form else GRANTS
    return RedirectResponse(page.url(then), 303)


ROUTES: Sequence[Route] = (
    page_route(INBOX, show_inbox),
    page_route(f"{INBOX}/cards", show_cards),
    page_route(f"{INBOX}/decided", show_decided),
    Route(f"{INBOX}/events", stream_events, methods=["GET"]),
    page_route(f"{INBOX}/{{approval_id}}", show_request),
    form_route(f"{INBOX}/{{approval_id}}/approve", approve),
    form_route(f"{INBOX}/{{approval_id}}/deny", deny),
    page_route("/console/shortcuts", show_shortcuts),
    page_route(GRANTS, show_grants),
    form_route(f"{GRANTS}/{{grant_id}}/revoke", revoke_grant),
)
