"""Delivery worker: a background task in every gateway that sends events to webhooks.

One transaction stores the results of finished attempts and claims the next deliveries, so that a busy worker needs few
transactions. If a gateway crashes, its claims expire and another gateway repeats the deliveries. A receiver therefore
gets each event at least once, and sometimes more than once.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence

from toolgate_service.core.crypto import Vault
from toolgate_service.core.telemetry import span
from toolgate_service.db.database import Database
from toolgate_service.db.health import MAX_SKEW, OUTAGE, skew
from toolgate_service.db.retry import with_retry
from toolgate_service.outbound.sender import Sender, SendResult, signed_headers
from toolgate_service.webhooks.delivery_queue import (
    Attempt,
    AttemptResult,
    claim_deliveries,
    has_due_deliveries,
    record_results,
    release_deliveries,
)

logger = logging.getLogger("toolgate.gateway")

#: Maximum seconds that a shutdown waits for the current transaction, and then again for the running attempts.
SHUTDOWN_SECONDS = 1
#: Seconds to wait after a database error before the worker polls again.
ERROR_PAUSE = 1
#: Seconds to wait after another gateway has announced events. That gateway sends its own events immediately, so usually
#: none are left for this one.
NOTIFY_DELAY = 0.05


class Worker:
    """Background task that claims deliveries that are due, and sends them.

    Args:
        database: Database with the events and deliveries.
        vault: Vault that decrypts the secrets of webhooks.
        sender: HTTP client for the deliveries.
        seconds: Seconds between two polls of the database. Events of this process do not wait for the next poll.
        format_slack: Function that converts the JSON of an event to a Slack message.

    Attributes:
        attempts: Number of finished attempts by result (``delivered``, ``refused``, ``unreachable``), for the metrics.
    """

    def __init__(
        self,
        database: Database,
        vault: Vault,
        sender: Sender,
        seconds: float,
        format_slack: Callable[[str], str],
    ) -> None:
        self._database = database
        self._vault = vault
        self._sender = sender
        self._seconds = seconds
        self._format_slack = format_slack
        self.attempts = Counter[str](delivered=0, refused=0, unreachable=0)
        self._woken = asyncio.Event()
        self._urgent = False
        self._running: dict[asyncio.Task[None], Attempt] = {}
        self._results: list[AttemptResult] = []
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def wake(self) -> None:
        """Make the worker poll now. Call this method after this process has committed events."""
        self._urgent = True
        self._woken.set()

    def wake_later(self) -> None:
        """Make the worker poll after `NOTIFY_DELAY`.

        Call this method after another gateway has committed events. Usually, that gateway sends its events itself.
        """
        asyncio.get_running_loop().call_later(NOTIFY_DELAY, self._woken.set)

    def start(self) -> None:
        """Start the background task."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop the background task. Claims of attempts that do not finish in time are released for other gateways."""
        if self._task is not None:
            self._stopping = True
            self.wake()
            # Wait before the task is cancelled, so that a running transaction can finish.
            await asyncio.wait((self._task,), timeout=SHUTDOWN_SECONDS)
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
            await self._finish_attempts()
        await self._sender.close()

    async def _run(self) -> None:
        while not self._stopping:
            # Reset the flags before the poll, so that events that are committed during the poll cause another poll.
            urgent, self._urgent = self._urgent, False
            self._woken.clear()
            try:
                await self._poll(urgent=urgent)
            except Exception as failed:  # noqa: BLE001 - logged; the loop tries again
                OUTAGE.failed("attempts to deliver events", failed)
                await asyncio.sleep(ERROR_PAUSE)
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), self._seconds)

    async def _poll(self, *, urgent: bool) -> None:
        results = list(self._results)
        if not results and not urgent and not await with_retry(lambda: has_due_deliveries(self._database)):
            return
        claimed = await with_retry(lambda: self._record_and_claim(results))
        del self._results[: len(results)]
        for attempt in claimed:
            self._start_attempt(attempt)

    async def _record_and_claim(self, results: Sequence[AttemptResult]) -> Sequence[Attempt]:
        # Attempts that end while this transaction runs still count against the limits, because their results are stored
        # only by the next transaction.
        unrecorded = [*self._running.values(), *(attempt for attempt, _ in results)]
        async with self._database.writing() as session:
            await record_results(session, results)
            ended = {attempt.delivery_id for attempt, _ in results}
            running = [attempt for attempt in unrecorded if attempt.delivery_id not in ended]
            # Receivers check the timestamp of the signature, so nothing is sent while the clock of this machine is
            # wrong.
            if skew(session) > MAX_SKEW:
                return ()
            return await claim_deliveries(session, self._vault, running)

    def _start_attempt(self, attempt: Attempt) -> None:
        task = asyncio.create_task(self._deliver(attempt))
        self._running[task] = attempt
        task.add_done_callback(self._on_attempt_done)

    def _on_attempt_done(self, task: asyncio.Task[None]) -> None:
        if self._running.pop(task, None) is not None:
            self.wake()

    async def _deliver(self, attempt: Attempt) -> None:
        attributes = {"toolgate.event_id": attempt.event_id, "toolgate.event": attempt.kind}
        with span("toolgate.gateway.deliver", attributes) as one:
            result = await self._send(attempt)
            if one is not None:
                one.set_attribute("toolgate.outcome", result.outcome)
        self.attempts[result.outcome] += 1
        self._results.append((attempt, result))

    async def _send(self, attempt: Attempt) -> SendResult:
        if attempt.is_slack and attempt.url:
            return await self._sender.send(attempt.url, {}, self._format_slack(attempt.body))
        if attempt.is_slack:
            return SendResult(None, "the stored URL cannot be decrypted; set the URL again")
        if attempt.secrets:
            headers = signed_headers(attempt.event_id, attempt.claimed_at, attempt.body, attempt.secrets)
            return await self._sender.send(attempt.url, headers, attempt.body)
        return SendResult(None, "the signing secret cannot be decrypted; rotate the secret")

    async def _finish_attempts(self) -> None:
        running = dict(self._running)
        if running:
            await asyncio.wait(running, timeout=SHUTDOWN_SECONDS)
        left = {task: attempt for task, attempt in running.items() if not task.done()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        try:
            await with_retry(lambda: self._record_and_release(list(left.values())))
        except Exception:
            logger.exception(
                "could not store the results of the last deliveries; their events are delivered again"
            )

    async def _record_and_release(self, attempts: Sequence[Attempt]) -> None:
        async with self._database.writing() as session:
            await record_results(session, self._results)
            await release_deliveries(session, attempts)
