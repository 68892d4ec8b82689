"""Long polls: HTTP requests with which agents wait until their approval request is decided.

The notifier wakes a long poll immediately after a decision. Because notifications can be lost, each long poll also
reads the state every few seconds. This read is one indexed query. It uses the database connections of the auth store,
so waiting agents do not occupy the connections for requests of users.
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

#: time after the end of a long poll during which the console still shows the call as waiting, because the client needs
#: some time to start the next long poll
POLL_GRACE = timedelta(seconds=5)
#: interval in seconds between two reads of an approval request's state while this process receives no notifications
#: from other processes; a waiting client then receives a decision of another process after at most this time
READ_INTERVAL = 1.0
#: interval in seconds between two reads of an approval request's state while this process receives notifications from
#: other processes
NOTIFIED_READ_INTERVAL = 5.0


@dataclass(frozen=True, slots=True)
class LongPoll:
    """Long poll of one client that waits for the decision about an approval request.

    Attributes:
        context: Configuration and services of the gateway.
        auth_store: Store that reads the state of the request and verifies the API key.
        key_digest: Digest of the API key that the client sent.
        auth: Organization, environment and agent of the API key.
        peer: IP address of the client; None if it is unknown.
    """

    context: AppContext
    auth_store: AuthStore
    key_digest: str
    auth: AuthContext
    peer: str | None

    async def load(self, approval_id: str) -> SdkApprovalView:
        """Return the current state of an approval request.

        Raises:
            ApiError: 401 if the API key was revoked or its organization was deactivated; 403 if the client's address is
                not in the allowed networks; 404 if the request does not exist, or the key belongs to another agent.
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
        """Wait at most `seconds` until the request is decided. Meanwhile, approvers see that a tool call is waiting.

        The wait can end earlier for the reasons that `wait_for_change` lists.
        """
        # A client with an advisory key changes nothing, not even what approvers see.
        until = None if self.auth.is_advisory else await self._store_wait(approval_id, seconds)
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
        """Store that a client waits for the decision, and return the end of the wait, which includes `POLL_GRACE`.

        The result is None if the database is unavailable.
        """
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
            # Ignore the error: the end of the wait is only shown to approvers and does not affect the decision.
            logger.debug(
                "cannot store that a client waits for approval %s: %s", approval_id, type(error).__name__
            )
            return None
        return until

    async def _clear_wait(self, approval_id: str, until: datetime, others: datetime | None) -> None:
        """Correct the stored end of the wait after a client has disconnected early.

        `until` is the end that was stored for this client. If a later end has been stored since then, nothing changes.
        `others` is the new value: the latest end of the other waits in this process, or None.
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
                "cannot store that a client no longer waits for approval %s: %s",
                approval_id,
                type(error).__name__,
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
        """Wait for the decision about a request. Return True if the client disconnected.

        The wait ends when the request is decided, `seconds` have passed, the API key loses access, the gateway shuts
        down, or the client disconnects.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        with self.context.notifier.watch_approval(approval_id) as changed:
            while True:
                # Clear the event before the state is read, so that a change after the read still ends the wait.
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
                # Read less often while notifications arrive. If they stop, the notifier wakes all long polls, which
                # then use the shorter interval.
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
