"""Downloads of receipts: proofs that the transparency log contains a log entry, a decision or an approval request."""

from collections.abc import Sequence

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from toolgate_service.console.dependencies import PageContext, page_route
from toolgate_service.console.security import HEADERS
from toolgate_service.http.responses import NO_STORE
from toolgate_service.transparency.leaves import APPROVAL, DECISION, LOG_ENTRY
from toolgate_service.transparency.service import get_receipt


async def download_entry_receipt(page: PageContext) -> Response:
    """Return the receipt of a log entry as a file."""
    return await _download(page, LOG_ENTRY, page.param("entry_id"))


async def download_decision_receipt(page: PageContext) -> Response:
    """Return the receipt of a decision as a file."""
    return await _download(page, DECISION, page.param("decision_id"))


async def download_approval_receipt(page: PageContext) -> Response:
    """Return the receipt of the latest state of an approval request as a file."""
    return await _download(page, APPROVAL, page.param("approval_id"))


async def _download(page: PageContext, kind: str, row_id: str) -> Response:
    tenant = (page.caller.organization_id, page.environment)
    async with page.gateway.database.reading() as session:
        receipt = await get_receipt(session, page.gateway.sealer, *tenant, kind, row_id)
    name = {"Content-Disposition": f'attachment; filename="{row_id}.tlog-proof"'}
    return PlainTextResponse(receipt, headers={**HEADERS, **NO_STORE, **name})


ROUTES: Sequence[Route] = (
    page_route("/console/logs/{entry_id}/receipt", download_entry_receipt),
    page_route("/console/decisions/{decision_id}/receipt", download_decision_receipt),
    page_route("/console/approvals/{approval_id}/receipt", download_approval_receipt),
)
