"""HTTP routes of the operator, which exist only if the operator has set a token.

The OpenAPI document omits them: users of the gateway cannot send these requests.
"""

import hmac
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from pydantic import SecretStr

from toolgate_service.core.errors import ApiError
from toolgate_service.http.dependencies import GatewayDep, peer
from toolgate_service.http.responses import NO_STORE, NoContent, Reply
from toolgate_service.http.strict_route import StrictRoute, from_headers
from toolgate_service.scratch import service
from toolgate_service.scratch.schemas import NewScratchOrganization, ScratchOrganizationView

OrganizationIdPath = Annotated[str, Path(description="Id of the scratch organization, a UUID.")]


def operator_routes(token: SecretStr) -> APIRouter:
    """Return the router of the operator's routes, which require this bearer token."""
    expected = token.get_secret_value().encode()

    @from_headers
    async def authenticate_operator(request: Request, gateway: GatewayDep) -> None:
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        # Compare in constant time, because the time until the first difference would reveal a part of the token.
        if scheme.lower() != "bearer" or not hmac.compare_digest(sent.strip(" \t").encode(), expected):
            error = ApiError(401, "Not authenticated as the operator", {"WWW-Authenticate": "Bearer"})
            raise await gateway.auth_failures.reject(peer(request), error)

    router = APIRouter(
        prefix="/api/operator/scratch-organizations",
        tags=["operator"],
        route_class=StrictRoute,
        dependencies=[Depends(authenticate_operator)],
    )

    @router.post("", response_model=ScratchOrganizationView, status_code=201)
    async def create_scratch_organization(new: NewScratchOrganization, gateway: GatewayDep) -> Reply:
        """Create a temporary organization, and return session tokens of its users."""
        return Reply(await service.create_scratch(gateway, new), 201, headers=NO_STORE)

    @router.delete("/{organization_id}", status_code=204)
    async def delete_scratch_organization(
        organization_id: OrganizationIdPath, gateway: GatewayDep
    ) -> NoContent:
        """Deactivate a scratch organization. The gateway deletes its rows within about two minutes."""
        await service.close_scratch(gateway.database, organization_id)
        return NoContent()

    return router
