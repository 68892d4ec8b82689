"""Routes of the API documentation: `/openapi.json` (OpenAPI document) and `/docs` (the document in Swagger UI)."""

from functools import cache
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, Response

#: The page may load files from the gateway only. `img-src data:` is needed because the style sheet contains its icons
#: as `data:` URLs.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)

_MEDIA_TYPES = {
    "swagger-ui.css": "text/css; charset=utf-8",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "initializer.js": "text/javascript; charset=utf-8",
}
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Toolgate API</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<noscript><p>This page needs JavaScript. The same document for programs: <a href="/openapi.json">/openapi.json</a></p></noscript>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/initializer.js"></script>
</body>
</html>
"""

router = APIRouter(tags=["documentation"])
#: router of the files that the page loads; these routes are not in the OpenAPI document
files_router = APIRouter(include_in_schema=False)


@router.get("/openapi.json", response_model=dict[str, Any])
async def get_openapi_document(request: Request) -> Response:
    """Return this OpenAPI document."""
    return Response(request.app.state.document_json(), media_type="application/json")


@router.get("/docs", response_class=HTMLResponse)
async def get_documentation() -> HTMLResponse:
    """Return a web page that shows this OpenAPI document. The page loads nothing from other hosts."""
    return HTMLResponse(_PAGE, headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY})


@cache
def _read(name: str) -> bytes:
    return files(__package__).joinpath("swagger_ui", name).read_bytes()


def _static(name: str) -> None:
    @files_router.get(f"/docs/{name}")
    async def get_static_file() -> Response:
        headers = {"Cache-Control": "public, max-age=86400"}
        return Response(_read(name), media_type=_MEDIA_TYPES[name], headers=headers)


for _name in _MEDIA_TYPES:
    _static(_name)
