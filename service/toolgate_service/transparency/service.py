"""Status and receipts of the transparency log."""

from base64 import b64encode

from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.core.errors import ApiError, not_found
from toolgate_service.transparency import merkle
from toolgate_service.transparency.keys import BehindPublished
from toolgate_service.transparency.leaves import APPROVAL
from toolgate_service.transparency.models import TransparencyChunk, TransparencyLog
from toolgate_service.transparency.repository import (
    find_latest_leaf,
    find_leaf,
    find_log,
    latest_note,
    note_size,
    read_hashes,
)
from toolgate_service.transparency.schemas import TransparencyStatus
from toolgate_service.transparency.sealer import Sealer

#: first line of a receipt, which identifies its format
PROOF_FORMAT = "c2sp.org/tlog-proof@v1"


async def open_log(
    session: AsyncSession, sealer: Sealer, organization_id: str, environment: str
) -> TransparencyLog:
    """Return the log of an environment, after verifying that its checkpoint may be sent to a client.

    Raises:
        ApiError: 409, the log has no leaves yet; 503, the database does not contain a published checkpoint.
    """
    log = await find_log(session, organization_id, environment)
    if log is None:
        raise _empty()
    problem = await _find_problem(session, sealer, log)
    if problem is not None:
        raise ApiError(503, problem, {"Retry-After": "60"})
    sealer.publish(log)
    return log


async def get_status(
    session: AsyncSession, sealer: Sealer, organization_id: str, environment: str
) -> TransparencyStatus:
    """Return the state of the log of an environment.

    Raises:
        ApiError: 409, the log has no leaves yet.
    """
    log = await find_log(session, organization_id, environment)
    if log is None:
        raise _empty()
    problem = await _find_problem(session, sealer, log) or sealer.problems.get((organization_id, environment))
    query = select(func.sum(TransparencyChunk.number)).where(
        TransparencyChunk.organization_id == organization_id,
        TransparencyChunk.environment == environment,
        col(TransparencyChunk.first_index).is_(None),
    )
    return TransparencyStatus(
        origin=log.origin,
        vkey=log.vkey,
        size=log.size,
        root=b64encode(log.root).decode(),
        checkpoint=latest_note(log),
        sealed_at=log.sealed_at,
        pending=(await session.exec(query)).one() or 0,
        problem=problem,
        witnesses=_signers(log.cosigned)[1:],
    )


async def _find_problem(session: AsyncSession, sealer: Sealer, log: TransparencyLog) -> str | None:
    """Return an error message if the database lacks a published checkpoint of the log; otherwise None."""
    try:
        await sealer.check(session, log)
    except BehindPublished:
        try:
            await sealer.check_again(log.organization_id, log.environment)
        except BehindPublished as behind:
            return str(behind)
    return None


async def get_receipt(
    session: AsyncSession, sealer: Sealer, organization_id: str, environment: str, kind: str, row_id: str
) -> str:
    """Return the receipt of a row: a proof that the log contains the row's leaf.

    The receipt of an approval request proves its latest state. The row itself may have been deleted.

    Raises:
        ApiError: 404, the log has no such leaf; 409, the leaf is not part of the tree yet; 503, the database does not
            contain a published checkpoint.
    """
    tenant = (organization_id, environment)
    if kind == APPROVAL:
        leaf = await find_latest_leaf(session, *tenant, row_id)
    else:
        leaf = await find_leaf(session, *tenant, kind, row_id)
    if leaf is None:
        raise not_found("Receipt")
    if leaf.index is None:
        raise ApiError(
            409,
            "No checkpoint of the transparency log covers this record yet; retry after one second",
            {"Retry-After": "1"},
        )
    log = await open_log(session, sealer, *tenant)
    note = latest_note(log)
    if leaf.index < note_size(log.cosigned):
        note = log.cosigned
    ranges = merkle.inclusion_ranges(leaf.index, note_size(note))
    hashes = await read_hashes(session, *tenant, ranges)
    lines = [PROOF_FORMAT, f"extra {b64encode(leaf.data).decode()}", f"index {leaf.index}"]
    lines += [b64encode(one).decode() for one in hashes]
    return "\n".join([*lines, "", note])


def _empty() -> ApiError:
    return ApiError(
        409,
        "The transparency log has no entries yet: the gateway adds the first entry about a second after the first "
        "change in the environment",
        {"Retry-After": "1"},
    )


def _signers(note: str) -> list[str]:
    return [line.split(" ")[1] for line in note.splitlines() if line.startswith("— ")]
