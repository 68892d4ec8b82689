"""Submission, status and cancellation of access requests."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple
from uuid import uuid4

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.access_requests.callbacks import read_callback
from toolgate_service.access_requests.denials import verify_denial
from toolgate_service.access_requests.errors import (
    duplicate_request,
    invalid_binding,
    invalid_task_state,
    task_expired,
    unknown_task,
)
from toolgate_service.access_requests.models import AccessRequest, AccessRequestItem
from toolgate_service.access_requests.repository import find_access_request, find_by_key, is_submitted
from toolgate_service.access_requests.schemas import Denial, Submission
from toolgate_service.access_requests.signing import Signer
from toolgate_service.access_requests.tasks import LoadedTask, load_task, task_body
from toolgate_service.approvals import service as approvals
from toolgate_service.approvals.grant_proposals import end_proposal
from toolgate_service.approvals.models import PENDING, Approval
from toolgate_service.authzen.schemas import Evaluation, read_evaluation
from toolgate_service.context import AppContext, KeyCaller
from toolgate_service.core.errors import REQUIRED, ApiError, FieldErrors
from toolgate_service.core.strict_json import Json, canonical, digest, refuse_deep
from toolgate_service.db.database import now
from toolgate_service.organizations.repository import is_key_valid

#: time after the expiry of an unused approval during which the task can still be read, and its idempotency key is known
TASK_GRACE = timedelta(hours=24)
#: interval in seconds after which a client should read a pending task again
POLL_SECONDS = 5


class TaskResponse(NamedTuple):
    """Response body of a task, with the state and the URL of the task."""

    body: dict[str, Json]
    status: str
    url: str


async def submit(
    context: AppContext,
    caller: KeyCaller,
    submission: Submission,
    idempotency_key: str | None,
    base_url: str,
) -> TaskResponse:
    """Create the task for one or several denied evaluations, or return the task of an earlier attempt.

    An earlier attempt is a submission with the same idempotency key and the same body. The task only refers to the
    approval requests, which the evaluations have already created or found.

    Raises:
        ApiError: 400 if the submission is invalid, or does not belong to denied evaluations that wait for approval; 401
            if the API key was revoked; 403 if `client.actor` is not the agent; 409 if the idempotency key was sent with
            another body; 410 if a denial has expired.
    """
    pairs = list(_evaluations(submission))
    signer, auth = Signer(context.vault.access_request_keys, base_url), caller.context
    body = submission.model_dump(exclude_none=True)
    refuse_deep(body)
    fingerprint = digest(canonical(body))
    async with context.database.writing(auth.organization_id) as session:
        await _require_valid_key(session, caller)
        if idempotency_key is not None:
            earlier = await find_by_key(session, auth, idempotency_key)
            if earlier is not None and earlier.fingerprint != fingerprint:
                raise duplicate_request()
            if earlier is not None:
                return await _respond(session, await load_task(session, earlier), base_url)
        bound = [
            await verify_denial(session, signer, caller, denial, evaluation) for evaluation, denial in pairs
        ]
        ids = [one.evaluation_id for one in bound]
        if len(set(ids)) < len(ids) or await is_submitted(session, auth, ids):
            raise invalid_binding("The denial was submitted before; evaluate the access again")
        _verify_actor(submission, [one.approval for one in bound])
        callback = None
        if submission.callback is not None:
            callback = await read_callback(session, context, auth, submission.callback, base_url)
        moment = now(session)
        use = timedelta(seconds=context.settings.approval_use_ttl_seconds)
        expires = max(moment, *(one.approval.expires_at for one in bound)) + use + TASK_GRACE
        request = AccessRequest(
            id=str(uuid4()),
            organization_id=auth.organization_id,
            environment=auth.environment,
            key_id=auth.key_id,
            submission=canonical(_without_tokens(body)),
            is_bulk=submission.items is not None,
            idempotency_key=idempotency_key,
            fingerprint=fingerprint,
            callback=callback,
            created_at=moment,
            expires_at=expires,
        )
        session.add(request)
        await session.flush()
        session.add_all(
            AccessRequestItem(
                request_id=request.id,
                position=position,
                organization_id=auth.organization_id,
                environment=auth.environment,
                evaluation_id=one.evaluation_id,
                approval_id=one.approval.id,
                expires_at=expires,
            )
            for position, one in enumerate(bound)
        )
        await session.flush()
        return await _respond(session, await load_task(session, request), base_url)


async def get_task(context: AppContext, caller: KeyCaller, request_id: str, base_url: str) -> TaskResponse:
    """Return the current state of a task.

    Raises:
        ApiError: 404 if the task does not exist, if the API key may not act as the agent of one of its items, or if
            all its approval requests were deleted; 410 if the task can no longer be read.
    """
    async with context.database.reading() as session:
        return await _respond(session, await _load(session, caller, request_id), base_url)


async def cancel(
    context: AppContext, caller: KeyCaller, request_id: str, reason: str | None, base_url: str
) -> TaskResponse:
    """Cancel the pending approval requests of a task.

    Raises:
        ApiError: 401 if the API key was revoked; 404 and 410 as in `get_task`; 409 if the task is not pending.
    """
    async with context.database.writing(caller.context.organization_id) as session:
        await _require_valid_key(session, caller)
        task = await _load(session, caller, request_id)
        if task.status != PENDING:
            raise invalid_task_state(task.status)
        # Several items can belong to the same approval request.
        found = {
            state.approval.id: state.approval
            for state in task.states
            if state.status == PENDING and state.approval is not None
        }
        by = "cancelled by the agent" + (f": {reason}" if reason else "")
        await approvals.cancel(session, list(found.values()), by)
        for approval in found.values():
            await end_proposal(session, approval)
        response = await _respond(session, await load_task(session, task.request), base_url)
    for approval_id in found:
        context.notifier.notify(approval_id)
    return response


async def _require_valid_key(session: AsyncSession, caller: KeyCaller) -> None:
    if not await is_key_valid(session, caller.key_digest):
        raise ApiError(401, "Invalid API key")


async def _load(session: AsyncSession, caller: KeyCaller, request_id: str) -> LoadedTask:
    auth = caller.context
    request = await find_access_request(session, auth.organization_id, auth.environment, request_id)
    if request is None:
        raise unknown_task()
    task = await load_task(session, request)
    agents = {state.approval.agent_id for state in task.states if state.approval is not None}
    if not agents or not all(map(caller.may_act_as, agents)):
        raise unknown_task()
    if request.expires_at <= now(session):
        raise task_expired()
    return task


async def _respond(session: AsyncSession, task: LoadedTask, base_url: str) -> TaskResponse:
    body = await task_body(session, task, base_url)
    view = body["task"]
    url = view["status_endpoint"] if isinstance(view, dict) else ""
    return TaskResponse(body, task.status, str(url))


def _evaluations(submission: Submission) -> Iterator[tuple[Evaluation, Denial | None]]:
    """Yield the submitted evaluations, each with its denial.

    Raises:
        FieldErrors: An entity is missing or invalid, or entities were sent both inside and outside of `items`.
    """
    shared: dict[str, Json] = {"subject": submission.subject, "context": submission.context}
    if submission.items is None:
        single: dict[str, Json] = {"resource": submission.resource, "action": submission.action}
        yield read_evaluation(shared | single), submission.denial
        return
    both = [name for name in ("resource", "action") if getattr(submission, name) is not None]
    if both:
        raise FieldErrors({name: ["must be omitted if items are sent"] for name in both})
    for item in submission.items:
        entities: dict[str, Json] = {"resource": item.resource, "action": item.action}
        # Require a denial in each item: each decision is about one item, so a denial of the whole submission would
        # belong to none of them.
        yield read_evaluation(shared | entities), item.denial


def _verify_actor(submission: Submission, found: Sequence[Approval]) -> None:
    """Verify that `client.actor`, if it was sent, is the agent of every evaluation, and acts directly for the subject.

    Raises:
        ApiError: 403 if the actor is another agent, or acts for another actor.
        FieldErrors: The actor has no id.
    """
    actor = submission.client.actor if submission.client is not None else None
    if actor is None:
        return
    actor_id, behind = actor.get("id"), actor.get("act")
    if actor_id is None:
        raise FieldErrors({"client.actor.id": [REQUIRED]})
    # An API key proves only which agent acts, so a chain with further actors cannot be verified.
    acts_for_subject = behind is None or (
        isinstance(behind, dict) and behind.get("sub") == submission.subject.get("id") and "act" not in behind
    )
    if not acts_for_subject or any(actor_id != one.agent_id for one in found):
        raise ApiError(
            403,
            "client.actor: the API key does not authenticate this actor; send the id of the agent in the denied "
            "evaluation",
        )


def _without_tokens(body: dict[str, Json]) -> dict[str, Json]:
    items = body.get("items")
    cleaned = _without_token(body)
    if isinstance(items, list):
        cleaned["items"] = [_without_token(item) if isinstance(item, dict) else item for item in items]
    return cleaned


def _without_token(item: dict[str, Json]) -> dict[str, Json]:
    denial = item.get("denial")
    if not isinstance(denial, dict):
        return dict(item)
    return item | {"denial": {name: value for name, value in denial.items() if name != "binding_token"}}
