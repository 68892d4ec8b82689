"""Background task that appends committed leaves to the trees, and signs a checkpoint of each tree.

Each gateway runs a sealer. A lock in the database ensures that only one of them changes a tree at a time. The positions
of the leaves, the tiles and the checkpoint are stored in one transaction, and a checkpoint is published only after the
commit. If a gateway is killed, the database therefore contains either the old or the new tree, and no published
checkpoint belongs to a tree that does not exist.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias
from urllib.parse import quote

from sqlalchemy import ColumnElement, func, or_
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.approvals.models import Approval, ApprovalVote
from toolgate_service.audit.models import AuditEntry
from toolgate_service.core.crypto import Vault
from toolgate_service.core.ids import new_id
from toolgate_service.core.settings import Settings
from toolgate_service.db.database import Database, now
from toolgate_service.db.health import OUTAGE, STORAGE_FAULTS
from toolgate_service.db.models import PRODUCTION
from toolgate_service.decisions.models import Decision
from toolgate_service.logs.models import LogEntry
from toolgate_service.policies.models import PolicyRevision
from toolgate_service.transparency import merkle
from toolgate_service.transparency.chunks import add_leaf
from toolgate_service.transparency.cosigner import Cosigner
from toolgate_service.transparency.keys import BehindPublished, LogKeys
from toolgate_service.transparency.leaves import (
    APPROVAL,
    AUDIT_EVENT,
    DECISION,
    LOG_ENTRY,
    POLICY_REVISION,
    START,
    VOTE,
    build_leaf,
    pack,
    unpack,
)
from toolgate_service.transparency.merkle import TileId
from toolgate_service.transparency.models import TransparencyLog
from toolgate_service.transparency.note import Checkpoint, Signer
from toolgate_service.transparency.published import PublishedCheckpoints
from toolgate_service.transparency.repository import (
    PendingChunk,
    Tenant,
    find_log,
    load_tiles,
    lock_name,
    pending_chunks,
    pending_tenants,
    place_chunks,
    read_root,
    store_tiles,
)
from toolgate_service.transparency.witnesses import WitnessClient

logger = logging.getLogger("toolgate.gateway")

#: seconds between two rounds; in each round, the sealer appends the new leaves of all logs to their trees
INTERVAL = 0.8
#: maximum number of chunks that one transaction appends
MAX_CHUNKS = 200
#: maximum number of snapshots that `check_again` reads
_ATTEMPTS = 3
#: maximum seconds that a shutdown waits for the last round
STOP_SECONDS = 5.0

LoggedModel: TypeAlias = type[Decision | LogEntry | Approval | ApprovalVote | AuditEntry | PolicyRevision]
#: models whose rows have leaves, by the kind of the leaf
LOGGED: Mapping[str, LoggedModel] = {
    DECISION: Decision,
    LOG_ENTRY: LogEntry,
    APPROVAL: Approval,
    VOTE: ApprovalVote,
    AUDIT_EVENT: AuditEntry,
    POLICY_REVISION: PolicyRevision,
}


class Sealer:
    """Background task of one gateway that seals leaves: it appends them to the trees, and signs the checkpoints.

    Args:
        database: Database of the gateway.
        keys: Private keys of the logs.
        published: Memory of published checkpoints.
        cosigner: Tasks that let witnesses cosign the checkpoints.
        public_url: URL of the gateway, from which the names of new logs are derived; None if it is unknown.

    Attributes:
        problems: Reasons why leaves currently cannot be appended to a log, by organization id and environment.
    """

    def __init__(
        self,
        database: Database,
        keys: LogKeys,
        published: PublishedCheckpoints,
        cosigner: Cosigner,
        public_url: str | None,
    ) -> None:
        self._database = database
        self._cosigner = cosigner
        self._keys = keys
        self._published = published
        # Quote the URL, because origins must not contain spaces or plus signs.
        self._host = "toolgate" if public_url is None else quote(public_url.partition("://")[2], safe="/:[]")
        #: environments for which the witnesses were asked for their latest checkpoint
        self._asked: set[Tenant] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = asyncio.Event()
        self.problems: dict[Tenant, str] = {}

    @classmethod
    def of(
        cls, database: Database, settings: Settings, vault: Vault, checkpoint_file: Path | None
    ) -> "Sealer":
        """Create a sealer with the keys and the witnesses in the settings.

        `checkpoint_file` is the file for published checkpoints if the settings contain none. If both are None, the
        checkpoints are remembered only until the process ends.

        Raises:
            StorageError: The file with the key cannot be used.
        """
        keys = LogKeys(vault, settings.transparency_key_file)
        path = settings.checkpoint_file or checkpoint_file
        if path is None and not settings.witnesses:
            logger.warning(
                "TOOLGATE_CHECKPOINT_FILE is not set: after a restart, the gateway cannot recognize a restored database"
            )
        published = PublishedCheckpoints(path)
        cosigner = Cosigner(database, WitnessClient(settings.witnesses), keys, published)
        return cls(database, keys, published, cosigner, settings.public_url)

    def start(self) -> None:
        """Load the memory of published checkpoints, and start the background task."""
        self._published.load()
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Seal all committed leaves, and stop. Leaves that remain after `STOP_SECONDS` are sealed at the next start."""
        self._is_closing.set()
        if self._task is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self._task
        await self._cosigner.stop()

    async def _run(self) -> None:
        while True:
            is_last = self._is_closing.is_set()
            try:
                await self.seal_all()
            except Exception as error:  # noqa: BLE001 - the error is logged, and the next round tries again
                OUTAGE.failed("attempts to update the transparency logs", error)
            if is_last:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL):
                    await self._is_closing.wait()

    async def seal_all(self) -> None:
        """Append all committed leaves of all environments to their trees."""
        async with self._database.reading() as session:
            tenants = await pending_tenants(session)
        # Seal a limited number of leaves of each log in turn, so that a busy log does not delay the others.
        while tenants:
            tenants = [tenant for tenant in tenants if await self.seal(*tenant)]

    async def seal(self, organization_id: str, environment: str) -> bool:
        """Append committed leaves of an environment to its tree, and return whether more leaves may be pending.

        If the leaves cannot be appended, log the reason, store it in `problems`, and return False. Only an error of the
        database is raised.
        """
        tenant = (organization_id, environment)
        try:
            has_more = await self._seal(tenant)
        except BehindPublished as behind:
            self._report(tenant, str(behind))
        except STORAGE_FAULTS:
            # The database is not available for any log, so this round ends.
            raise
        except Exception as error:
            # An error in one log must not prevent the others from being sealed.
            logger.debug("cannot append leaves to the transparency log %s", "/".join(tenant), exc_info=True)
            self._report(tenant, f"Leaves cannot be appended to the log: {type(error).__name__}")
        else:
            self.problems.pop(tenant, None)
            return has_more
        return False

    def _report(self, tenant: Tenant, problem: str) -> None:
        if self.problems.get(tenant) != problem:
            logger.error(
                "the gateway cannot append leaves to the transparency log %s: %s", "/".join(tenant), problem
            )
        self.problems[tenant] = problem

    async def check(self, session: AsyncSession, log: TransparencyLog) -> None:
        """Verify that a log contains the checkpoints that readers have seen.

        Raises:
            BehindPublished: The database was restored from a backup, or a published leaf was changed.
        """
        for known in self._published.find(log.origin):
            if (known.size, known.root) == (log.size, log.root):
                continue
            if known.size > log.size:
                raise BehindPublished(
                    f"The log has {log.size} leaves, but a checkpoint of {known.size} leaves was published: the database "
                    "was restored from a backup. Restore a newer backup"
                )
            if await read_root(session, log, known.size) != known.root:
                raise BehindPublished(
                    f"The first {known.size} leaves of the log differ from those of a checkpoint that was published: the "
                    "database was restored from a backup, or changed. Restore a backup that contains them"
                )

    async def check_again(self, organization_id: str, environment: str) -> None:
        """Verify the current state of a log, after `check` failed for an earlier snapshot of the database.

        `check` also fails if the snapshot is older than a checkpoint that was published in the meantime.

        Raises:
            BehindPublished: The database was restored from a backup, or a published leaf was changed.
        """
        for attempt in reversed(range(_ATTEMPTS)):
            async with self._database.reading() as session:
                log = await find_log(session, organization_id, environment)
                try:
                    if log is not None:
                        await self.check(session, log)
                except BehindPublished:
                    if not attempt:
                        raise
                else:
                    return

    def publish(self, log: TransparencyLog) -> None:
        """Remember the checkpoint of a log.

        Call `check` before this method, and send the checkpoint to clients only after this method.
        """
        self._published.add(Checkpoint(log.origin, log.size, log.root))

    async def _seal(self, tenant: Tenant) -> bool:
        """Append the oldest pending chunks to the Merkle tree of an environment's log.

        A chunk contains the leaves that one transaction added. If the environment has no log yet, only the log is
        created. The result is True if more chunks may be pending.
        """
        async with self._database.reading() as session:
            log = await find_log(session, *tenant)
            earlier = {} if log is not None else await _count_earlier(session, *tenant)
        if log is None:
            return await self._begin(tenant, earlier)
        if tenant not in self._asked:
            # Ask the witnesses once, because another gateway may have published checkpoints that the database, restored
            # from a backup, no longer contains.
            await self._cosigner.remember_latest(log)
            self._asked.add(tenant)
        async with self._database.reading() as session:
            log = await find_log(session, *tenant)
            chunks = await pending_chunks(session, *tenant, MAX_CHUNKS)
            if log is None or not chunks:
                return False
            tiles = await load_tiles(session, *tenant, merkle.edge_tiles(log.size))
        # Compute the hashes in a thread and without the lock, so that checks and log entries do not wait for them.
        tree = await asyncio.to_thread(_extend, log, tiles, chunks, self._keys.signer(log))
        async with self._database.writing(lock_name(*tenant)) as session:
            current = await find_log(session, *tenant)
            if current is None or (current.size, current.root) != (log.size, log.root):
                # Another gateway appended leaves in the meantime.
                return True
            await self.check(session, current)
            await _store(session, current, chunks, tree)
        self.publish(current)
        self._cosigner.submit(tenant)
        return len(chunks) >= MAX_CHUNKS

    async def _begin(self, tenant: Tenant, earlier: Mapping[str, int]) -> bool:
        """Add the log of an environment with its first leaf, and return True, because there are more leaves."""
        async with self._database.writing(lock_name(*tenant)) as session:
            if await find_log(session, *tenant) is not None:
                return True
            log, chunk = await self._create(session, tenant, earlier)
            await self.check(session, log)
            await _store(session, log, [chunk], _extend(log, {}, [chunk], self._keys.signer(log)))
        self.publish(log)
        return True

    async def _create(
        self, session: AsyncSession, tenant: Tenant, earlier: Mapping[str, int]
    ) -> tuple[TransparencyLog, PendingChunk]:
        """Add the log of an environment, and a chunk with its first leaf.

        This leaf contains the numbers of rows that are older than the log, by kind.
        """
        organization_id, environment = tenant
        log_id, moment = new_id(), now(session)
        origin = f"{self._host}/tlog/{organization_id}/{environment}"
        seed, ciphertext = self._keys.create(log_id, organization_id)
        log = TransparencyLog(
            id=log_id,
            organization_id=organization_id,
            environment=environment,
            origin=origin,
            ciphertext=ciphertext,
            vkey=Signer(origin, seed).vkey,
            size=0,
            root=merkle.EMPTY_ROOT,
            checkpoint="",
            sealed_at=moment,
        )
        session.add(log)
        await session.flush()
        numbers = dict(sorted(earlier.items()))
        start = build_leaf(START, organization_id, environment, moment, id=log_id, earlier=numbers)
        sequence = await add_leaf(session, start)
        return log, PendingChunk(sequence, 1, pack([start.data]))


class _Tree(NamedTuple):
    """State of a tree after leaves were appended: changed tiles, size, root and signed note."""

    tiles: Mapping[TileId, bytes]
    size: int
    root: bytes
    note: str


def _extend(
    log: TransparencyLog, tiles: Mapping[TileId, bytes], chunks: Sequence[PendingChunk], signer: Signer
) -> _Tree:
    hashes = [merkle.hash_leaf(leaf) for chunk in chunks for leaf in unpack(chunk.data)]
    changed = merkle.append(log.size, tiles, hashes)
    size = log.size + len(hashes)
    root = merkle.root(size, {**tiles, **changed}.__getitem__)
    return _Tree(changed, size, root, signer.sign(Checkpoint(log.origin, size, root)))


async def _store(
    session: AsyncSession, log: TransparencyLog, chunks: Sequence[PendingChunk], tree: _Tree
) -> None:
    positions, size = [], log.size
    for chunk in chunks:
        positions.append((chunk.sequence, size))
        size += chunk.number
    await place_chunks(session, positions)
    await store_tiles(session, log.organization_id, log.environment, tree.tiles)
    log.size, log.root, log.checkpoint, log.sealed_at = tree.size, tree.root, tree.note, now(session)
    session.add(log)


def rows_of(model: LoggedModel, environment: str) -> Sequence[ColumnElement[bool]]:
    """Return the SQL conditions that restrict an organization's rows to those that belong to an environment's log.

    Audit events that belong to no environment are part of the log of `production`.
    """
    in_environment = col(model.environment) == environment
    if model is AuditEntry and environment == PRODUCTION:
        return [or_(in_environment, col(model.environment).is_(None))]
    return [in_environment]


async def _count_earlier(session: AsyncSession, organization_id: str, environment: str) -> Mapping[str, int]:
    """Count the rows of an environment that have no leaf, by kind. Kinds without such rows are omitted."""
    counts = {}
    for kind, model in LOGGED.items():
        rows = (col(model.organization_id) == organization_id, *rows_of(model, environment))
        if model is ApprovalVote:
            # Select votes by their approval requests, because the table of votes has no index on the environment.
            approvals = select(Approval.id).where(
                Approval.organization_id == organization_id, Approval.environment == environment
            )
            rows = (col(ApprovalVote.approval_id).in_(approvals),)
        query = select(func.count()).where(*rows, col(model.salt).is_(None))
        counts[kind] = (await session.exec(query)).one()
    return {kind: count for kind, count in counts.items() if count}
