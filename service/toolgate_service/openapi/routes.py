"""HTTP for the description of the interface; the application's state makes the document when first asked for."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from toolgate_service.openapi.page import CONTENT_SECURITY_POLICY, page
from toolgate_service.web.replies import Reply

router = APIRouter(tags=["documentation"])


@router.get("/openapi.json", response_model=dict[str, Any])
async def get_openapi_document(request: Request) -> Reply:
    """Return this document."""
    return Reply(request.app.state.document())


@router.get("/docs", response_class=HTMLResponse)
async def get_documentation(request: Request) -> HTMLResponse:
    """Return this document as a page to read: no script, nothing from elsewhere."""
    return HTMLResponse(
        page(request.app.state.document()), headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    )
