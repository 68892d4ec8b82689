"""Background tasks that let witnesses cosign new checkpoints.

A witness cosigns a checkpoint only if the checkpoint extends the one that the witness cosigned before. Readers who
trust a witness therefore know that the operator shows the same log to all readers.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextvars import Context

from toolgate_service.core.witness_settings import Witness
from toolgate_service.db.database import Database
from toolgate_service.db.health import OUTAGE
from toolgate_service.scratch.models import find_scratch
from toolgate_service.transparency import merkle
from toolgate_service.transparency.keys import BehindPublished, LogKeys
from toolgate_service.transparency.models import TransparencyLog
from toolgate_service.transparency.published import PublishedCheckpoints
from toolgate_service.transparency.repository import Tenant, find_log, lock_name, note_size, read_hashes
from toolgate_service.transparency.witnesses import (
    WitnessAhead,
    WitnessClient,
    WitnessError,
    WitnessInconsistent,
    WitnessResult,
)

logger = logging.getLogger("toolgate.gateway")

#: seconds between two checkpoints of a log that are sent to the witnesses
INTERVAL = 1.0


class Cosigner:
    """Background tasks of one gateway that send checkpoints to the witnesses, with at most one task for each log.

    Args:
        database: Database of the gateway.
        client: Client of the witnesses.
        keys: Private keys of the logs.
        published: Memory of published checkpoints.
    """

    def __init__(
        self, database: Database, client: WitnessClient, keys: LogKeys, published: PublishedCheckpoints
    ) -> None:
        self._database = database
        self._client = client
        self._keys = keys
        self._published = published
        self._waiting: set[Tenant] = set()
        self._tasks: dict[Tenant, asyncio.Task[None]] = {}
        #: latest error of each witness for each log, by the witness's name and the log's origin
        self._errors: dict[tuple[str, str], str] = {}

    def submit(self, tenant: Tenant) -> None:
        """Send the latest checkpoint of a log to the witnesses, in the background."""
        if not self._client.witnesses:
            return
        self._waiting.add(tenant)
        if tenant not in self._tasks:
            self._tasks[tenant] = asyncio.create_task(self._run(tenant), context=Context())

    async def stop(self) -> None:
        """End all tasks, and close the connections to the witnesses."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    async def _run(self, tenant: Tenant) -> None:
        try:
            while tenant in self._waiting:
                self._waiting.discard(tenant)
                try:
                    await self._send(tenant)
                except Exception as error:  # noqa: BLE001 - the error is logged, and the next checkpoint is sent again
                    OUTAGE.failed("cosignatures of checkpoints", error)
                await asyncio.sleep(INTERVAL)
        finally:
            del self._tasks[tenant]

    async def _send(self, tenant: Tenant) -> None:
        async with self._database.reading() as session:
            log = await find_log(session, *tenant)
            if log is None or await find_scratch(session, log.organization_id) is not None:
                # Skip scratch organizations: a witness accepts only logs that its operator has registered, and each
                # scratch organization has new logs.
                return

        async def prove(old: int, new: int) -> Sequence[bytes]:
            async with self._database.reading() as session:
                return await read_hashes(session, *tenant, merkle.consistency_ranges(old, new))

        results = await self._client.cosign_all(log.origin, log.checkpoint, log.size, prove)
        for result in results:
            self._report(log, result)
            if isinstance(result.error, WitnessAhead | WitnessInconsistent):
                await self._fetch_latest(log, result.witness)
        lines = [result.cosignature.line for result in results if result.cosignature is not None]
        if lines:
            await self._store(tenant, log, lines)

    async def _store(self, tenant: Tenant, log: TransparencyLog, lines: Sequence[str]) -> None:
        async with self._database.writing(lock_name(*tenant)) as session:
            current = await find_log(session, *tenant)
            if current is not None and note_size(current.cosigned) < log.size <= current.size:
                current.cosigned = log.checkpoint + "".join(lines)
                session.add(current)

    async def remember_latest(self, log: TransparencyLog) -> None:
        """Fetch and remember the latest checkpoint that each witness has cosigned.

        Witnesses that do not respond are skipped.
        """
        await asyncio.gather(*(self._fetch_latest(log, witness) for witness in self._client.witnesses))

    async def _fetch_latest(self, log: TransparencyLog, witness: Witness) -> None:
        """Remember the latest checkpoint that a witness has cosigned, if this gateway's key signed it.

        A rejection by a witness is not signed, so it does not prove that the database was restored from a backup. The
        cosigned checkpoint does, because this gateway's key signed it.
        """
        try:
            note = await self._client.fetch_latest(witness, log.origin)
            checkpoint = None if note is None else self._keys.signer(log).verify(note)
        except (WitnessError, BehindPublished, ValueError):
            # There is no checkpoint to remember. If the witness also fails when the next checkpoint is sent to it,
            # `_report` logs that error.
            return
        if checkpoint is not None and checkpoint.origin == log.origin:
            self._published.add(checkpoint, is_cosigned=True)

    def _report(self, log: TransparencyLog, result: WitnessResult) -> None:
        """Log an error of a witness once, until the error changes or the witness cosigns again."""
        key, text = (result.witness.name, log.origin), "" if result.error is None else str(result.error)
        if text == self._errors.get(key, ""):
            return
        self._errors[key] = text
        if text:
            logger.warning("the witness %s does not cosign %s: %s", *key, text)
        else:
            logger.info("the witness %s cosigns %s again", *key)
