"""Callbacks: notifications about the end of access requests.

The endpoint of a callback is the URL of a webhook of the environment, and the callback is an event that only this
webhook receives. The gateway therefore signs and retries a callback like any event of the webhook, and never sends it
to an address that is forbidden for webhooks. A callback contains the status of the task (the access request as its
client reads it), but not the result.
"""

from functools import partial

from pydantic import BaseModel
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.access_requests.models import AccessRequest
from toolgate_service.access_requests.repository import find_access_request, find_decided_callbacks
from toolgate_service.access_requests.schemas import Callback
from toolgate_service.access_requests.tasks import load_task, task_url
from toolgate_service.approvals.models import PENDING
from toolgate_service.context import AppContext, AuthContext
from toolgate_service.core.errors import FieldErrors
from toolgate_service.core.strict_json import Json
from toolgate_service.db.database import Database
from toolgate_service.db.retry import with_retry
from toolgate_service.outbound.ssrf import InvalidUrl, canonical_url
from toolgate_service.webhooks.events import add_payload, find_receiver


class _Stored(BaseModel):
    url: str
    base_url: str
    state: str | None
    events: list[str] | None


async def read_callback(
    session: AsyncSession, context: AppContext, auth: AuthContext, callback: Callback, base_url: str
) -> str:
    """Validate a callback, and return it in the form in which it is stored, as JSON.

    Raises:
        FieldErrors: The endpoint is not the URL of an enabled webhook of the environment.
    """
    try:
        url = canonical_url(callback.endpoint, allow_private=context.settings.webhooks_allow_private)
    except InvalidUrl as error:
        raise FieldErrors({"callback.endpoint": [str(error)]}) from None
    if await find_receiver(session, auth.organization_id, auth.environment, url) is None:
        problem = (
            "must be the URL of an enabled webhook of type 'standard' in this environment; create the webhook"
        )
        raise FieldErrors({"callback.endpoint": [problem]})
    stored = _Stored(url=url, base_url=base_url, state=callback.state, events=callback.events)
    return stored.model_dump_json()


async def send_callbacks(database: Database) -> None:
    """Add a callback event for each access request that has ended and whose callback was not sent yet.

    No event is added if the client did not ask for callbacks about the final state, or if the webhook of the callback
    no longer exists or is disabled.
    """
    async with database.reading() as session:
        found = await find_decided_callbacks(session)
    for organization_id, environment, request_id in found:
        await with_retry(partial(_send, database, organization_id, environment, request_id))


async def _send(database: Database, organization_id: str, environment: str, request_id: str) -> None:
    async with database.writing(organization_id) as session:
        request = await find_access_request(session, organization_id, environment, request_id)
        if request is None or request.callback is None:
            # Another gateway has sent the callback, or the access request was deleted.
            return
        status = (await load_task(session, request)).status
        if status == PENDING:
            return
        callback = _Stored.model_validate_json(request.callback)
        request.callback = None
        session.add(request)
        if callback.events is None or status in callback.events:
            await _add_event(session, request, status, callback)


async def _add_event(session: AsyncSession, request: AccessRequest, status: str, callback: _Stored) -> None:
    tenant = (request.organization_id, request.environment)
    webhook_id = await find_receiver(session, *tenant, callback.url)
    if webhook_id is None:
        # The webhook was disabled or deleted in the meantime. The client can still read the task.
        return
    body: dict[str, Json] = {
        "task": {
            "id": request.id,
            "status": status,
            "status_endpoint": task_url(callback.base_url, request.id),
        }
    }
    if callback.state is not None:
        body["state"] = callback.state
    await add_payload(session, *tenant, f"access_request.{status}", body, webhook_id)
