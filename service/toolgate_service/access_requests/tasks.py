"""State of access requests, which follows from the states of their approval requests.

| approval request                                       | task                 |
| ------------------------------------------------------ | -------------------- |
| pending                                                | pending              |
| approved or consumed                                   | approved             |
| expired or cancelled after it was approved             | approved             |
| denied                                                 | denied               |
| expired without a decision                             | expired              |
| cancelled before a decision                            | cancelled            |
| replaced by a successor that was approved              | denied               |
| replaced by a successor that was not approved          | as for the successor |
| deleted                                                | expired              |

A final state of a task never changes, even if an approval later expires without being used.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.access_requests.denials import recorded_evaluation
from toolgate_service.access_requests.models import AccessRequest, AccessRequestItem
from toolgate_service.access_requests.repository import count_votes, list_items, load_approvals
from toolgate_service.approvals.models import (
    APPROVED,
    CANCELLED,
    DENIED,
    EXPIRED,
    PENDING,
    Approval,
    state_of,
)
from toolgate_service.authzen.metadata import ACCESS_REQUESTS
from toolgate_service.core import strict_json
from toolgate_service.core.clock import wire
from toolgate_service.core.strict_json import Json
from toolgate_service.db.database import now

PARTIAL = "partial"
REEVALUATE = "reevaluate"
#: mode of the result of a task whose arguments an approver edited; clients that do not know this mode grant no access
EDITED = "urn:toolgate:result:edited"
#: page of the console with the pending approval requests
_CONSOLE = "/console/approvals"


class ItemState(NamedTuple):
    """State of an item of a task.

    Attributes:
        status: State of the item.
        approval: The approval request that determines the state: the successor if an approver edited the arguments.
            None if its row was deleted.
        is_edited: True if an approver approved other arguments than those of the evaluation.
    """

    status: str
    approval: Approval | None
    is_edited: bool = False


class LoadedTask(NamedTuple):
    """Access request with the states of its items."""

    request: AccessRequest
    items: Sequence[AccessRequestItem]
    states: Sequence[ItemState]

    @property
    def status(self) -> str:
        """State of the task: pending if any item is pending, the common state of all items, or `partial`."""
        found = {state.status for state in self.states}
        if PENDING in found:
            return PENDING
        return found.pop() if len(found) == 1 else PARTIAL


async def load_task(session: AsyncSession, request: AccessRequest) -> LoadedTask:
    """Return an access request with the current states of its items."""
    items = await list_items(session, request)
    tenant = (request.organization_id, request.environment)
    approvals = await load_approvals(session, tenant, {item.approval_id for item in items})
    moment = now(session)
    return LoadedTask(request, items, [item_state(item.approval_id, approvals, moment) for item in items])


def item_state(approval_id: str, approvals: Mapping[str, Approval], moment: datetime) -> ItemState:
    """Return the state of the item whose evaluation created the approval request with this id."""
    first = approvals.get(approval_id)
    last = first
    while last is not None and last.replaced_by is not None:
        last = approvals.get(last.replaced_by)
    if first is None or last is None:
        return ItemState(EXPIRED, None)
    state = state_of(last, moment)
    if state in {PENDING, DENIED}:
        return ItemState(state, last)
    # The request was approved if it was decided and not rejected, whatever happened to the approval afterwards.
    if last.decided_at is not None:
        return ItemState(APPROVED, last) if last is first else ItemState(DENIED, last, is_edited=True)
    return ItemState(state if state in {EXPIRED, CANCELLED} else EXPIRED, last)


def task_url(base_url: str, request_id: str) -> str:
    """Return the URL of a task."""
    return f"{base_url}{ACCESS_REQUESTS}/{request_id}"


async def task_body(session: AsyncSession, task: LoadedTask, base_url: str) -> dict[str, Json]:
    """Return the response body of a task. Members without a value are absent."""
    request = task.request
    url = task_url(base_url, request.id)
    view: dict[str, Json] = {
        "id": request.id,
        "status": task.status,
        "status_endpoint": url,
        "expires_at": wire(request.expires_at),
        "links": {"cancel": f"{url}/cancel", "review": base_url + _CONSOLE},
    }
    progress = await _progress(session, task)
    if progress is not None:
        view["progress"] = progress
    if request.is_bulk:
        submitted: Any = strict_json.loads_own(request.submission)
        # The submission is empty after its contents were erased.
        erased: dict[str, Any] = {"resource": {}, "action": {}}
        entities = submitted.get("items") or [erased] * len(task.items)
        view["items"] = [
            {
                "resource": entities[item.position]["resource"],
                "action": entities[item.position]["action"],
                "status": state.status,
                **_result(state),
            }
            for item, state in zip(task.items, task.states, strict=True)
        ]
        return {"task": view}
    return {"task": view, **_result(task.states[0])}


async def _progress(session: AsyncSession, task: LoadedTask) -> Json:
    """Return the progress of the pending items that need several approvals; None if there are no such items."""
    waiting = [state.approval for state in task.states if state.status == PENDING]
    several = [one for one in waiting if one is not None and one.required_approvals > 1]
    if not several:
        return None
    votes = sum([await count_votes(session, one) for one in several])
    total = sum(one.required_approvals for one in several)
    return {"current_step": min(votes + 1, total), "total_steps": total}


def _result(state: ItemState) -> dict[str, Json]:
    approval = state.approval
    if approval is None or approval.decided_at is None:
        return {}
    if state.is_edited:
        recorded = recorded_evaluation(approval)
        if recorded is None:
            return {}
        evaluation: dict[str, Json] = {name: dict(entity) for name, entity in recorded._asdict().items()}
        # The client must name the approval: an evaluation without it is a different call, even with equal arguments.
        result: dict[str, Json] = {
            "mode": EDITED,
            "evaluation": evaluation,
            "approval": _reference(approval, approval.decided_at),
        }
        return {"result": result}
    if state.status != APPROVED:
        return {}
    return {"result": {"mode": REEVALUATE, "approval": _reference(approval, approval.decided_at)}}


def _reference(approval: Approval, decided_at: datetime) -> dict[str, Json]:
    return {
        "id": approval.id,
        "approved_at": wire(decided_at),
        "approved_until": wire(approval.expires_at),
    }
