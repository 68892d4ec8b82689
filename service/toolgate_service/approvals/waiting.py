"""An agent waits for a decision (decisions §3): woken at once, and looking once in a while beneath.

A look costs one indexed read on the loop's own connection; the pool that people's requests share is asked only at the
beginning and at the end.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement
from sqlmodel import col, or_, update

from toolgate_service.approvals.finding import find_approval
from toolgate_service.approvals.models import PENDING, Approval
from toolgate_service.approvals.schemas import SdkApprovalView
from toolgate_service.approvals.views import sdk_view
from toolgate_service.errors import ApiError, not_found
from toolgate_service.gateway import Gateway
from toolgate_service.hotpath.standing import Standing
from toolgate_service.organizations import networks
from toolgate_service.storage.database import now
from toolgate_service.web.edge import STORAGE_FAULTS

logger = logging.getLogger("toolgate.gateway")

#: a call that polls again within this time still waits
BETWEEN_POLLS = timedelta(seconds=5)
#: seconds between two looks: what another process decided is seen that late where nobody announces it
LOOK_AGAIN = 1.0
#: where it is announced
LOOK_SELDOM = 5.0


@dataclass(frozen=True, slots=True)
class Asking:
    """Somebody with a valid API key, and the address from which it is used."""

    gateway: Gateway
    key_digest: str
    standing: Standing
    peer: str | None

    async def look(self, approval_id: str) -> SdkApprovalView:
        """Return an approval as it is now.

        Raises:
            ApiError: 404, it is not the key's to see; 401, the key stopped working meanwhile; 403, it does so from here.
        """
        standing = await self.gateway.reader.standing(self.key_digest)
        if standing is None or not standing.organization_is_active:
            raise ApiError(401, "Invalid API key")
        if not self._is_within(standing):
            raise networks.elsewhere(self.peer)
        async with self.gateway.database.reading() as session:
            approval = await find_approval(
                session, self.standing.organization_id, self.standing.environment, approval_id
            )
            if self.standing.key_agent_id not in {None, approval.agent_id}:
                raise not_found("Approval")
            return await sdk_view(session, approval)

    async def wait_as_call(
        self, approval_id: str, seconds: int, hung_up: Callable[[], Awaitable[bool]]
    ) -> None:
        """Wait as `wait_for_change` does; meanwhile approvers see that a call waits."""
        until = await self._announce_call(approval_id, seconds)
        if until is None:
            await self.wait_for_change(approval_id, seconds, hung_up)
            return
        calls = self.gateway.hub.calls.setdefault(approval_id, [])
        calls.append(until)
        try:
            left = await self.wait_for_change(approval_id, seconds, hung_up)
        finally:
            calls.remove(until)
            if not calls:
                self.gateway.hub.calls.pop(approval_id, None)
        if left:
            await self._withdraw_call(approval_id, until, max(calls, default=None))

    async def _announce_call(self, approval_id: str, seconds: int) -> datetime | None:
        """Store that a call waits; approvers see it. Return until when, or None if it could not be stored."""
        try:
            async with self.gateway.database.writing() as session:
                moment = now(session)
                until = moment + timedelta(seconds=seconds) + BETWEEN_POLLS
                waits_shorter = or_(
                    col(Approval.waiting_until).is_(None), col(Approval.waiting_until) < until
                )
                await session.exec(
                    update(Approval)
                    .where(*self._is(approval_id), waits_shorter)
                    .values(last_asked_at=moment, waiting_until=until)
                )
        except STORAGE_FAULTS as error:
            # Only the display depends on it: the call waits all the same.
            logger.debug("waiting for approval %s could not be stored: %s", approval_id, type(error).__name__)
            return None
        return until

    async def _withdraw_call(self, approval_id: str, until: datetime, others: datetime | None) -> None:
        """Store that a call no longer waits, and until when other calls of this process do."""
        try:
            async with self.gateway.database.writing() as session:
                await session.exec(
                    update(Approval)
                    .where(*self._is(approval_id), col(Approval.waiting_until) == until)
                    .values(waiting_until=others)
                )
        except STORAGE_FAULTS as error:
            logger.debug(
                "the end of a wait for %s could not be stored: %s", approval_id, type(error).__name__
            )

    def _is(self, approval_id: str) -> tuple[ColumnElement[bool], ...]:
        return (
            col(Approval.id) == approval_id,
            col(Approval.organization_id) == self.standing.organization_id,
            col(Approval.environment) == self.standing.environment,
            col(Approval.status) == PENDING,
        )

    async def wait_for_change(
        self, approval_id: str, seconds: int, hung_up: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Wait until the approval is decided, the time is up, the key stopped working or the client hung up.

        Returns:
            Whether the client hung up.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        with self.gateway.hub.watching(approval_id) as changed:
            while True:
                # Before the look: a change after it must still wake.
                changed.clear()
                if (
                    not (
                        await self.gateway.reader.still_pending(approval_id) and await self._still_admitted()
                    )
                    or self.gateway.hub.closed
                ):
                    return False
                left = deadline - loop.time()
                if left <= 0:
                    return False
                if await hung_up():
                    return True
                # Whoever stops hearing of others wakes everybody.
                pause = LOOK_SELDOM if self.gateway.hub.hears_others else LOOK_AGAIN
                try:
                    await asyncio.wait_for(changed.wait(), min(left, pause))
                except TimeoutError:
                    continue

    async def _still_admitted(self) -> bool:
        standing = await self.gateway.reader.standing(self.key_digest)
        return standing is not None and bool(standing.organization_is_active) and self._is_within(standing)

    def _is_within(self, standing: Standing) -> bool:
        kept = standing.ip_allow_list
        return kept is None or networks.admits(kept, self.peer)
