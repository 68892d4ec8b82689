"""HTTP for the description of the interface; the application's state makes the document when first asked for."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

from toolgate_service.openapi.page import CONTENT_SECURITY_POLICY

router = APIRouter(tags=["documentation"])


@router.get("/openapi.json", response_model=dict[str, Any])
async def get_openapi_document(request: Request) -> Response:
    """Return this document."""
    return Response(request.app.state.document_json(), media_type="application/json")


@router.get("/docs", response_class=HTMLResponse)
async def get_documentation(request: Request) -> HTMLResponse:
    """Return this document as a page to read: no script, nothing from elsewhere."""
    return HTMLResponse(
        request.app.state.document_page(), headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    )
