"""Long polls, with which agents wait until their approval request is decided.

The notifier wakes a long poll immediately after a decision. Notifications can be lost, so each long poll also reads the
state every few seconds. This read is one indexed query of the auth store, which has its own connections, so waiting
agents do not occupy the connections for requests of users.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement
from sqlmodel import col, or_, update

from toolgate_service.approvals.models import PENDING, Approval
from toolgate_service.approvals.repository import find_approval
from toolgate_service.approvals.schemas import SdkApprovalView, serialize_for_agent
from toolgate_service.auth_store import AuthStore
from toolgate_service.context import AppContext, AuthContext
from toolgate_service.core.errors import ApiError, not_found
from toolgate_service.db.database import now
from toolgate_service.db.health import STORAGE_FAULTS
from toolgate_service.organizations import ip_allowlist

logger = logging.getLogger("toolgate.gateway")

#: time after the end of a long poll in which the request still counts as waiting, so that the client can poll again
POLL_GRACE = timedelta(seconds=5)
#: seconds between two reads of the state; a decision in another process is noticed after at most this time
READ_INTERVAL = 1.0
#: seconds between two reads of the state while notifications of other processes arrive
NOTIFIED_READ_INTERVAL = 5.0


@dataclass(frozen=True, slots=True)
class LongPoll:
    """Long poll of a client.

    Attributes:
        context: Dependencies of the services.
        auth_store: Store that reads the state and verifies the API key.
        key_digest: Digest of the client's API key.
        auth: Organization, environment and agent of the API key.
        peer: IP address of the client; None if it is unknown.
    """

    context: AppContext
    auth_store: AuthStore
    key_digest: str
    auth: AuthContext
    peer: str | None

    async def load(self, approval_id: str) -> SdkApprovalView:
        """Return the current state of a request.

        Raises:
            ApiError: 401, the API key was revoked or its organization was deactivated; 403, the client's address is
                not allowed; 404, the request does not exist, or the key belongs to another agent.
        """
        auth = await self.auth_store.load(self.key_digest)
        if auth is None or not auth.organization_is_active:
            raise ApiError(401, "Invalid API key")
        if not self._is_address_allowed(auth):
            raise ip_allowlist.address_forbidden(self.peer)
        async with self.context.database.reading() as session:
            approval = await find_approval(
                session, self.auth.organization_id, self.auth.environment, approval_id
            )
            if self.auth.key_agent_id not in {None, approval.agent_id}:
                raise not_found("Approval")
            return await serialize_for_agent(session, approval)

    async def wait(
        self, approval_id: str, seconds: int, is_disconnected: Callable[[], Awaitable[bool]]
    ) -> None:
        """Wait as `wait_for_change` does. Meanwhile, approvers see that a tool call is waiting for their decision."""
        until = await self._store_wait(approval_id, seconds)
        if until is None:
            await self.wait_for_change(approval_id, seconds, is_disconnected)
            return
        calls = self.context.notifier.calls.setdefault(approval_id, [])
        calls.append(until)
        try:
            left = await self.wait_for_change(approval_id, seconds, is_disconnected)
        finally:
            calls.remove(until)
            if not calls:
                self.context.notifier.calls.pop(approval_id, None)
        if left:
            await self._clear_wait(approval_id, until, max(calls, default=None))

    async def _store_wait(self, approval_id: str, seconds: int) -> datetime | None:
        """Mark the request as waiting and return the end of the wait; None if the database is unavailable."""
        try:
            async with self.context.database.writing() as session:
                moment = now(session)
                until = moment + timedelta(seconds=seconds) + POLL_GRACE
                waits_shorter = or_(
                    col(Approval.waiting_until).is_(None), col(Approval.waiting_until) < until
                )
                await session.exec(
                    update(Approval)
                    .where(*self._is_pending_request(approval_id), waits_shorter)
                    .values(last_asked_at=moment, waiting_until=until)
                )
        except STORAGE_FAULTS as error:
            # The mark is only information for approvers, so the call waits without it.
            logger.debug("waiting for approval %s could not be stored: %s", approval_id, type(error).__name__)
            return None
        return until

    async def _clear_wait(self, approval_id: str, until: datetime, others: datetime | None) -> None:
        """Update the stored end of the wait after a client disconnected.

        Args:
            approval_id: Id of the request.
            until: End of the disconnected client's wait. If another process stored a later time, nothing changes.
            others: Latest end of the other waits in this process; None if there are none.
        """
        try:
            async with self.context.database.writing() as session:
                await session.exec(
                    update(Approval)
                    .where(*self._is_pending_request(approval_id), col(Approval.waiting_until) == until)
                    .values(waiting_until=others)
                )
        except STORAGE_FAULTS as error:
            logger.debug(
                "the end of a wait for %s could not be stored: %s", approval_id, type(error).__name__
            )

    def _is_pending_request(self, approval_id: str) -> tuple[ColumnElement[bool], ...]:
        return (
            col(Approval.id) == approval_id,
            col(Approval.organization_id) == self.auth.organization_id,
            col(Approval.environment) == self.auth.environment,
            col(Approval.status) == PENDING,
        )

    async def wait_for_change(
        self, approval_id: str, seconds: int, is_disconnected: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Wait until the request is decided, `seconds` have passed, the key loses access, or the client disconnects.

        Returns:
            True if the client disconnected.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        with self.context.notifier.watch_approval(approval_id) as changed:
            while True:
                # The event is cleared before the state is read, so that a change after the read ends the wait.
                changed.clear()
                if (
                    not (await self.auth_store.is_pending(approval_id) and await self._is_authorized())
                    or self.context.notifier.closed
                ):
                    return False
                left = deadline - loop.time()
                if left <= 0:
                    return False
                if await is_disconnected():
                    return True
                # The longer interval is safe: if notifications stop, the notifier wakes all long polls.
                pause = NOTIFIED_READ_INTERVAL if self.context.notifier.receives_remote else READ_INTERVAL
                try:
                    await asyncio.wait_for(changed.wait(), min(left, pause))
                except TimeoutError:
                    continue

    async def _is_authorized(self) -> bool:
        auth = await self.auth_store.load(self.key_digest)
        return auth is not None and bool(auth.organization_is_active) and self._is_address_allowed(auth)

    def _is_address_allowed(self, auth: AuthContext) -> bool:
        allowed = auth.ip_allow_list
        return allowed is None or ip_allowlist.is_allowed(allowed, self.peer)
