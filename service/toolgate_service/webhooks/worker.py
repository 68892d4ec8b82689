"""Delivering events in the background; every gateway does (decisions §10).

One transaction writes down what came of earlier attempts and takes the next ones: the busier it is, the more of them
share one. What a gateway was at when it was killed is taken again by the next: at least once.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Sequence

from toolgate_service.slack.message import slack_message
from toolgate_service.storage.database import Database
from toolgate_service.storage.outage import OUTAGE
from toolgate_service.storage.races import anew
from toolgate_service.storage.readiness import MAX_SKEW, skew
from toolgate_service.tracing.spans import span
from toolgate_service.vault import Vault
from toolgate_service.webhooks.claims import Attempt, anything_due, claim, release
from toolgate_service.webhooks.results import Result, record
from toolgate_service.webhooks.sender import Outcome, Sender
from toolgate_service.webhooks.signing import signed_headers

logger = logging.getLogger("toolgate.gateway")

#: seconds that a transaction, and then the attempts, have to end when the gateway does
GRACE = 1
#: seconds until the database is asked again after it failed
FAULT_PAUSE = 1
#: seconds by which whoever wrote an event down is ahead of those who heard of it: mostly nothing is left to do for them
AFTER_OTHERS = 0.05


class Worker:
    """Delivers what is due.

    Args:
        database: where events are written down.
        vault: opens the signing secrets.
        sender: reaches receivers.
        seconds: between two looks into the database; this process's own events are seen at once.

    Attributes:
        attempts: how many have ended, by what came of them.
    """

    def __init__(self, database: Database, vault: Vault, sender: Sender, seconds: float) -> None:
        self._database = database
        self._vault = vault
        self._sender = sender
        self._seconds = seconds
        self.attempts = Counter[str](delivered=0, refused=0, unreachable=0)
        self._woken = asyncio.Event()
        self._urgent = False
        self._flying: dict[asyncio.Task[None], Attempt] = {}
        self._results: list[Result] = []
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def wake(self) -> None:
        """Take at once what is due."""
        self._urgent = True
        self._woken.set()

    def nudge(self) -> None:
        """Look soon whether anything is due: another gateway, which is at it already, has written events down."""
        asyncio.get_running_loop().call_later(AFTER_OTHERS, self._woken.set)

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End. What is under way has a moment; what then has not ended is left to the next gateway."""
        if self._task is not None:
            self._stopping = True
            self.wake()
            # Not in the middle of a transaction, unless the database keeps it waiting.
            await asyncio.wait((self._task,), timeout=GRACE)
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
            await self._land()
        await self._sender.close()

    async def _run(self) -> None:
        while not self._stopping:
            # Before the look: what is committed while it is under way is seen by the next.
            urgent, self._urgent = self._urgent, False
            self._woken.clear()
            try:
                await self._turn(urgent=urgent)
            except Exception as failed:  # noqa: BLE001 - it is logged, and tried again
                OUTAGE.failed("attempts to deliver events", failed)
                await asyncio.sleep(FAULT_PAUSE)
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), self._seconds)

    async def _turn(self, *, urgent: bool) -> None:
        results = list(self._results)
        if not results and not urgent and not await anew(lambda: anything_due(self._database)):
            return
        taken = await anew(lambda: self._write_and_take(results))
        del self._results[: len(results)]
        for attempt in taken:
            self._begin(attempt)

    async def _write_and_take(self, results: Sequence[Result]) -> Sequence[Attempt]:
        # What has ended but is not written down yet is still this gateway's.
        held = [*self._flying.values(), *(attempt for attempt, _ in results)]
        async with self._database.writing() as session:
            await record(session, results)
            ended = {attempt.delivery_id for attempt, _ in results}
            flying = [attempt for attempt in held if attempt.delivery_id not in ended]
            # No work in the background by a clock that is wrong (decisions §12): signatures carry its moment.
            return await claim(session, self._vault, flying) if skew(session) <= MAX_SKEW else ()

    def _begin(self, attempt: Attempt) -> None:
        task = asyncio.create_task(self._deliver(attempt))
        self._flying[task] = attempt
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._flying.pop(task, None) is not None:
            self.wake()

    async def _deliver(self, attempt: Attempt) -> None:
        told = {"toolgate.event_id": attempt.event_id, "toolgate.event": attempt.kind}
        with span("toolgate.gateway.deliver", told) as one:
            outcome = await self._tried(attempt)
            if one is not None:
                one.set_attribute("toolgate.outcome", _word(outcome))
        self.attempts[_word(outcome)] += 1
        self._results.append((attempt, outcome))

    async def _tried(self, attempt: Attempt) -> Outcome:
        if attempt.to_slack and attempt.url:
            return await self._sender.send(attempt.url, {}, slack_message(attempt.body))
        if attempt.to_slack:
            return Outcome(None, "the URL cannot be opened; set it again")
        if attempt.secrets:
            headers = signed_headers(attempt.event_id, attempt.moment, attempt.body, attempt.secrets)
            return await self._sender.send(attempt.url, headers, attempt.body)
        return Outcome(None, "the signing secret cannot be opened; rotate it")

    async def _land(self) -> None:
        flying = dict(self._flying)
        if flying:
            await asyncio.wait(flying, timeout=GRACE)
        left = {task: attempt for task, attempt in flying.items() if not task.done()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        try:
            await anew(lambda: self._leave(list(left.values())))
        except Exception:
            logger.exception("what was delivered last could not be written down; it is delivered again")

    async def _leave(self, attempts: Sequence[Attempt]) -> None:
        async with self._database.writing() as session:
            await record(session, self._results)
            await release(session, attempts)


def _word(outcome: Outcome) -> str:
    if outcome.delivered:
        return "delivered"
    return "unreachable" if outcome.code is None else "refused"
