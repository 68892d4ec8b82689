"""Console page of the policy: its latest revisions, and replays of past decisions under another policy."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from starlette.responses import Response
from starlette.routing import Route

from toolgate_service.console.dependencies import Form, PageContext, form_route, page_route, require_editor
from toolgate_service.console.log_views import parse_moment
from toolgate_service.console.queries import load_emails
from toolgate_service.console.templates import read_pagination, render_page
from toolgate_service.core import strict_json
from toolgate_service.core.errors import FieldErrors
from toolgate_service.policies import service
from toolgate_service.policies.models import PolicyRevision
from toolgate_service.policies.replay_schemas import PolicyReplay, ReplayReport
from toolgate_service.policies.replay_service import replay_policy
from toolgate_service.policies.schemas import ChangeView
from toolgate_service.policies.yaml import parse_policy

POLICY = "/console/policy"
PAGE_SIZE = 10
#: Maximum number of changes of one revision that the page shows.
MAX_CHANGES = 20
#: Maximum number of characters of a value in a change.
MAX_VALUE = 80
#: Labels of the categories into which a replay sorts past decisions, in the order of the page's table.
CATEGORIES: Mapping[str, str] = {
    "unchanged": "Unchanged",
    "newly_allowed": "Newly allowed",
    "newly_held": "Newly requires an approval",
    "newly_denied": "Newly denied",
    "not_replayable": "Not replayable",
}


@dataclass(frozen=True, slots=True)
class RevisionRow:
    """Row of the policy page's list of revisions.

    Attributes:
        changes: Descriptions of at most `MAX_CHANGES` changes.
        more: Number of further changes.
    """

    revision: PolicyRevision
    changes: Sequence[str]
    more: int


async def show_policy(
    page: PageContext,
    status: int = 200,
    *,
    message: str | None = None,
    typed: Form | None = None,
    report: ReplayReport | None = None,
) -> Response:
    """Render the policy page. `report` is the result of a replay; None if there was no replay."""
    pagination = read_pagination(page, PAGE_SIZE)
    async with page.gateway.database.reading() as session:
        found = await service.list_revisions(session, page.caller, page.environment, pagination)
        emails = await load_emails(session, {revision.created_by for revision in found.rows})
    return await render_page(
        page,
        "policy.html",
        status,
        rows=[_row(revision) for revision in found.rows],
        emails=emails,
        categories=CATEGORIES,
        message=message,
        typed=typed or Form([]),
        report=report,
        offset=pagination.offset,
        next_offset=pagination.offset + PAGE_SIZE if found.last else None,
    )


async def replay_candidate(page: PageContext, form: Form) -> Response:
    """Replay the decisions of a period under the policy in the form."""
    since, until = _period(form)
    # The parser needs up to two seconds for the longest texts. It therefore runs in a thread, and within the limit of
    # concurrent replays.
    with page.gateway.replays.acquire(page.caller.organization_id):
        policy = await asyncio.to_thread(parse_policy, form["policy"])
    request = PolicyReplay(policy=policy, since=since, until=until)
    report = await replay_policy(page.gateway, page.caller, page.environment, request)
    return await show_policy(page, typed=form, report=report)


def _period(form: Form) -> tuple[datetime | None, datetime | None]:
    wrong: dict[str, list[str]] = {}
    since, until = (parse_moment(form[name].strip(), name, wrong) for name in ("since", "until"))
    if wrong:
        raise FieldErrors(wrong)
    return since, until


def _row(revision: PolicyRevision) -> RevisionRow:
    changes = service.read_changes(revision)
    shown = [_describe(change) for change in changes[:MAX_CHANGES]]
    return RevisionRow(revision, shown, len(changes) - len(shown))


def _describe(change: ChangeView) -> str:
    text = f"{change.operation} {change.resource} {change.name}"
    if change.operation != "update":
        return text
    return f"{text}: {', '.join(_fields(change))}"


def _fields(change: ChangeView) -> Iterator[str]:
    for field in change.fields:
        yield f"{field.field} {_value(field.before)} → {_value(field.after)}"


def _value(value: object) -> str:
    text = value if isinstance(value, str) else strict_json.dumps(value)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"


ROUTES: Sequence[Route] = (
    page_route(POLICY, show_policy),
    form_route(POLICY, replay_candidate, authorize=require_editor, on_error=show_policy, keeps_input=True),
)
