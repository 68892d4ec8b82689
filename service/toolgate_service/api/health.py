"""Health checks: `/health` does not use the database, `/health/ready` does."""

from importlib.metadata import version

from fastapi import APIRouter
from pydantic import BaseModel, Field

from toolgate_service.core.schemas import example
from toolgate_service.db.health import SHUTTING_DOWN
from toolgate_service.http.dependencies import GatewayDep
from toolgate_service.http.openapi import NOT_READY, problems
from toolgate_service.http.responses import Reply

router = APIRouter(tags=["health"])

# Read the version once at import, because `version` reads the package's metadata file at each call.
_VERSION = version("toolgate")


class Health(BaseModel):
    """Response of `GET /health`."""

    model_config = example(status="ok", version=_VERSION)

    status: str = Field(description="Always `ok`.")
    version: str = Field(description="Version of the gateway.")


class Readiness(BaseModel):
    """Response of `GET /health/ready` while the gateway is ready."""

    model_config = example(status="ok")

    status: str = Field(description="Always `ok`. A gateway that is not ready responds with 503.")


@router.get("/health", response_model=Health, summary="Check that the process is running")
async def health() -> Reply:
    """Report that the process is running. This check does not query the database."""
    return Reply(Health(status="ok", version=_VERSION))


@router.get(
    "/health/ready",
    response_model=Readiness,
    responses=problems(NOT_READY),
    summary="Check that the gateway is ready",
)
async def ready(gateway: GatewayDep) -> Reply:
    """Report whether the gateway is ready: the database is usable, the clocks agree, and no shutdown has begun.

    The compared clocks are those of the gateway's machine and of the database.
    """
    readiness = gateway.readiness
    # Check for a shutdown here and not in `problem`: background jobs call `problem` too, and continue during a
    # shutdown.
    problem = SHUTTING_DOWN if readiness.is_shutting_down else await readiness.problem()
    if problem is None:
        return Reply(Readiness(status="ok"))
    return Reply({"status": "unavailable", "detail": problem}, 503, {"Retry-After": "1"})
