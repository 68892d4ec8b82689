"""Whether the gateway is alive (decisions §3)."""

from importlib.metadata import version

from fastapi import APIRouter
from pydantic import BaseModel

from toolgate_service.web.replies import Reply

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """The answer of GET /health."""

    status: str
    version: str


@router.get("/health", response_model=Health)
async def health() -> Reply:
    """Say that the process answers, without a look at the database."""
    return Reply(Health(status="ok", version=version("toolgate")))
