"""HTTP routes of the transparency log."""

import re
from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import PlainTextResponse, Response

from toolgate_service.accounts.sessions import Caller
from toolgate_service.approvals.repository import find_approval
from toolgate_service.audit.erasure import erase_context
from toolgate_service.core.errors import not_found
from toolgate_service.decisions.repository import get_decision
from toolgate_service.gateway import Gateway
from toolgate_service.http.dependencies import (
    AdminCaller,
    AnyCaller,
    ApprovalIdPath,
    EnvironmentName,
    GatewayDep,
)
from toolgate_service.http.openapi import CONFLICT, NOT_FOUND, problems
from toolgate_service.http.responses import NO_STORE, NoContent, Reply, Stream
from toolgate_service.http.strict_route import StrictRoute
from toolgate_service.logs.repository import get_entry
from toolgate_service.transparency import service
from toolgate_service.transparency.export import export_log
from toolgate_service.transparency.leaves import APPROVAL, DECISION, LOG_ENTRY, pack
from toolgate_service.transparency.merkle import HASH_BYTES, WIDTH, TileId
from toolgate_service.transparency.repository import find_log, latest_note, load_tiles, read_leaves
from toolgate_service.transparency.schemas import TransparencyStatus


class _PositionConvertor(PathConvertor):
    # Starlette's own pattern does not match line breaks. A path with a line break would match no route, and the
    # response would lack the headers that the OpenAPI document promises.
    regex = "(?s:.*)"


register_url_convertor("position", _PositionConvertor())
router = APIRouter(tags=["transparency"], route_class=StrictRoute)

OrganizationPath = Annotated[str, Path(description="Id of the organization, a UUID.")]
EntryIdPath = Annotated[str, Path(description="Id of the log entry, a UUID.")]
DecisionIdPath = Annotated[str, Path(description="Id of the decision, a UUID.")]
TreePath = Annotated[str, Path(description="Environment of the log: `production` or `test`.")]
PositionPath = Annotated[
    str,
    Path(
        description="Position of the tile in its level, in groups of three digits such as `x001/234`. For a tile "
        "with fewer than 256 members, `.p/` and the number of members follow."
    ),
]
#: response with a receipt, which is a text in the proof format of C2SP
RECEIPT: dict[int | str, dict[str, Any]] = {
    200: {"description": "The receipt.", "content": {"text/plain": {"schema": {"type": "string"}}}},
}
_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "The checkpoint.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}
_BYTES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The tile.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
# Full tiles never change. The response for a partial tile of a given width does not change either: after the tile has
# grown, it contains the same first hashes.
_IMMUTABLE = {"Cache-Control": "public, max-age=31536000, immutable"}
_PRIVATE = {"Cache-Control": "private, max-age=31536000, immutable"}
_POSITION = re.compile(r"((?:x[0-9]{3}/){0,5})([0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?")
_LEVEL = re.compile("[0-7]")


@router.get(
    "/api/transparency",
    response_model=TransparencyStatus,
    responses=problems(CONFLICT),
    summary="Get the transparency log",
)
async def get_transparency_log(
    caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Reply:
    """Return the key and the latest checkpoint of the environment's transparency log.

    The response is 409 before the first leaf is part of the log, which takes about a second.
    """
    async with gateway.database.reading() as session:
        return Reply(await service.get_status(session, gateway.sealer, caller.organization_id, environment))


@router.get(
    "/api/transparency/export",
    response_model=None,
    responses={
        200: {
            "description": "The file, with one JSON object on each line.",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        },
        **problems(CONFLICT),
    },
    summary="Export the transparency log as a file",
)
async def export_transparency_log(
    caller: AnyCaller, gateway: GatewayDep, environment: EnvironmentName = "production"
) -> Stream:
    """Return all leaves, and all rows that they describe, as lines of JSON. `toolgate log verify` verifies the file.

    The file contains the contexts of calls, and the salts of all digests.
    """
    headers = NO_STORE | {"Content-Disposition": f'attachment; filename="toolgate-{environment}-log.jsonl"'}
    parts = export_log(gateway, gateway.sealer, caller.organization_id, environment)
    return Stream(parts, "application/octet-stream", headers)


@router.get(
    "/api/logs/{entry_id}/receipt",
    response_model=None,
    responses={**RECEIPT, **problems(NOT_FOUND, CONFLICT)},
    summary="Get the receipt of a log entry",
)
async def get_log_entry_receipt(
    entry_id: EntryIdPath,
    caller: AnyCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> PlainTextResponse:
    """Return a proof that the transparency log contains this log entry.

    The response is 409 with `Retry-After` until the entry is part of a checkpoint, which takes about a second.
    """
    return await _get_receipt(gateway, caller, environment, LOG_ENTRY, entry_id)


@router.get(
    "/api/decisions/{decision_id}/receipt",
    response_model=None,
    responses={**RECEIPT, **problems(NOT_FOUND, CONFLICT)},
    summary="Get the receipt of a decision",
)
async def get_decision_receipt(
    decision_id: DecisionIdPath,
    caller: AnyCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> PlainTextResponse:
    """Return a proof that the transparency log contains this decision.

    The response is 409 with `Retry-After` until the decision is part of a checkpoint, which takes about a second.
    """
    return await _get_receipt(gateway, caller, environment, DECISION, decision_id)


@router.get(
    "/api/approvals/{approval_id}/receipt",
    response_model=None,
    responses={**RECEIPT, **problems(NOT_FOUND, CONFLICT)},
    summary="Get the receipt of an approval request",
)
async def get_approval_request_receipt(
    approval_id: ApprovalIdPath,
    caller: AnyCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> PlainTextResponse:
    """Return a proof that the transparency log contains the latest state of this approval request.

    The response is 409 with `Retry-After` until the state is part of a checkpoint, which takes about a second.
    """
    return await _get_receipt(gateway, caller, environment, APPROVAL, approval_id)


@router.post(
    "/api/logs/{entry_id}/erase",
    status_code=204,
    response_class=NoContent,
    responses=problems(NOT_FOUND),
    summary="Erase the context of a log entry",
)
async def erase_log_entry(
    entry_id: EntryIdPath,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> NoContent:
    """Delete the context of this log entry, for example because it contains personal data.

    Id, time, agent, action and status remain. The entry's receipt stays valid, and contains nothing of the context.
    """
    async with gateway.database.writing(caller.organization_id) as session:
        entry = await get_entry(session, caller.organization_id, environment, entry_id)
        await erase_context(session, caller, environment, LOG_ENTRY, entry)
    return NoContent()


@router.post(
    "/api/decisions/{decision_id}/erase",
    status_code=204,
    response_class=NoContent,
    responses=problems(NOT_FOUND),
    summary="Erase the context of a decision",
)
async def erase_decision(
    decision_id: DecisionIdPath,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> NoContent:
    """Delete the context of this decision and the digest of the context.

    The decision's receipt stays valid. Replays of policies can no longer include the decision.
    """
    async with gateway.database.writing(caller.organization_id) as session:
        decision = await get_decision(session, caller.organization_id, environment, decision_id)
        await erase_context(session, caller, environment, DECISION, decision)
    return NoContent()


@router.post(
    "/api/approvals/{approval_id}/erase",
    status_code=204,
    response_class=NoContent,
    responses=problems(NOT_FOUND, CONFLICT),
    summary="Erase the context of an approval request",
)
async def erase_approval_request(
    approval_id: ApprovalIdPath,
    caller: AdminCaller,
    gateway: GatewayDep,
    environment: EnvironmentName = "production",
) -> NoContent:
    """Delete the context and the agent's reason of this approval request. The request must be closed.

    The receipt stays valid. The response is 409 while the request is pending, or approved and not used.
    """
    async with gateway.database.writing(caller.organization_id) as session:
        approval = await find_approval(session, caller.organization_id, environment, approval_id)
        await erase_context(session, caller, environment, APPROVAL, approval)
    return NoContent()


@router.get(
    "/tlog/{organization_id}/{tree}/checkpoint",
    response_model=None,
    responses={**_TEXT, **problems(NOT_FOUND)},
    summary="Get the checkpoint of a transparency log",
)
async def get_checkpoint(
    organization_id: OrganizationPath, tree: TreePath, gateway: GatewayDep
) -> PlainTextResponse:
    """Return the latest checkpoint: a signed note with the origin, the size and the root of the log.

    The request needs no credentials. The response is 503 if the database does not contain a checkpoint that was
    published before, because it was restored from a backup.
    """
    async with gateway.database.reading() as session:
        if await find_log(session, organization_id, tree) is None:
            raise not_found("Transparency log")
        log = await service.open_log(session, gateway.sealer, organization_id, tree)
    return PlainTextResponse(latest_note(log), headers={"Cache-Control": "no-cache"})


@router.get(
    "/tlog/{organization_id}/{tree}/tile/entries/{position:position}",
    response_model=None,
    responses={**_BYTES, **problems(NOT_FOUND)},
    summary="Get up to 256 entries of a transparency log",
)
async def get_entry_bundle(
    organization_id: OrganizationPath,
    tree: TreePath,
    position: PositionPath,
    caller: AnyCaller,
    gateway: GatewayDep,
) -> Response:
    """Return up to 256 leaves, each after its length in two bytes. Leaves contain no contexts."""
    place, width = _read_position(position)
    if caller.organization_id != organization_id:
        raise not_found("Transparency log")
    start = place * WIDTH
    async with gateway.database.reading() as session:
        leaves = await read_leaves(session, organization_id, tree, start, start + width)
    if len(leaves) != width:
        raise not_found("Entry bundle")
    return Response(pack(leaves), media_type="application/octet-stream", headers=_PRIVATE)


@router.get(
    "/tlog/{organization_id}/{tree}/tile/{level}/{position:position}",
    response_model=None,
    responses={**_BYTES, **problems(NOT_FOUND)},
    summary="Get a tile of the Merkle tree of a transparency log",
)
async def get_tile(
    organization_id: OrganizationPath,
    tree: TreePath,
    level: Annotated[str, Path(description="Level of the tile in the Merkle tree, 0-7.")],
    position: PositionPath,
    gateway: GatewayDep,
) -> Response:
    """Return up to 256 hashes of 32 bytes each. The request needs no credentials."""
    place, width = _read_position(position)
    if _LEVEL.fullmatch(level) is None:
        raise not_found("Tile")
    tile = TileId(int(level), place)
    async with gateway.database.reading() as session:
        tiles = await load_tiles(session, organization_id, tree, [tile])
    hashes = tiles.get(tile, b"")[: width * HASH_BYTES]
    if len(hashes) != width * HASH_BYTES:
        raise not_found("Tile")
    return Response(hashes, media_type="application/octet-stream", headers=_IMMUTABLE)


async def _get_receipt(
    gateway: Gateway, caller: Caller, environment: str, kind: str, row_id: str
) -> PlainTextResponse:
    async with gateway.database.reading() as session:
        text = await service.get_receipt(
            session, gateway.sealer, caller.organization_id, environment, kind, row_id
        )
    return PlainTextResponse(text, headers=NO_STORE)


def _read_position(text: str) -> tuple[int, int]:
    """Parse the end of a tile's path, such as `x001/234` or `x001/234.p/5`.

    Return the position of the tile in its level, and the number of hashes or leaves in the tile.

    Raises:
        ApiError: 404, the text is not in canonical form, or the position is too large.
    """
    found = _POSITION.fullmatch(text)
    if found is None:
        raise not_found("Tile")
    groups, last, width = found.groups()
    place = int(groups.replace("x", "").replace("/", "") + last)
    if groups.startswith("x000/") or place >= 2**55 - 1 or int(width or 1) >= WIDTH:
        raise not_found("Tile")
    return place, int(width or WIDTH)
