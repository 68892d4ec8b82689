"""Whether the gateway is alive, and whether it can work (decisions §3)."""

from importlib.metadata import version

from fastapi import APIRouter
from pydantic import BaseModel

from toolgate_service.gateway import GatewayDep
from toolgate_service.openapi.problems import NOT_READY, problems
from toolgate_service.storage.readiness import LEAVING
from toolgate_service.web.replies import Reply

router = APIRouter(tags=["health"])

#: read once: it stands in a file
_VERSION = version("toolgate")


class Health(BaseModel):
    """The answer of GET /health."""

    status: str
    version: str


class Readiness(BaseModel):
    """The answer of GET /health/ready; with a 503 `detail` says what is wrong."""

    status: str


@router.get("/health", response_model=Health)
async def health() -> Reply:
    """Say that the process answers, without a look at the database."""
    return Reply(Health(status="ok", version=_VERSION))


@router.get("/health/ready", response_model=Readiness, responses=problems(NOT_READY))
async def ready(gateway: GatewayDep) -> Reply:
    """Say whether the database can be read and written, its clock is this machine's, and the gateway is to go on."""
    readiness = gateway.readiness
    # The background work goes on until the end, and asks for the database's part alone.
    problem = LEAVING if readiness.leaving else await readiness.problem()
    if problem is None:
        return Reply(Readiness(status="ok"))
    return Reply({"status": "unavailable", "detail": problem}, 503, {"Retry-After": "1"})
