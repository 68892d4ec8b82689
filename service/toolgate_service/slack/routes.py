"""HTTP routes for links between Slack accounts and users, and for the requests that Slack sends."""

import json
from functools import partial
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Request

from toolgate_service.core.errors import ApiError
from toolgate_service.http.dependencies import AnyCaller, FullCaller, GatewayDep, peer
from toolgate_service.http.openapi import CONFLICT, NOT_FOUND, problems
from toolgate_service.http.responses import NO_STORE, NoContent, Reply
from toolgate_service.http.strict_route import StrictRoute
from toolgate_service.slack import service
from toolgate_service.slack.messages import ephemeral_message
from toolgate_service.slack.schemas import (
    Click,
    Command,
    LinkCodeView,
    NewLinkCode,
    SignedRequest,
    SlackLinkView,
    read_payload,
)

router = APIRouter(prefix="/api/slack", tags=["slack"], route_class=StrictRoute)

#: Routes for requests from Slack. The OpenAPI document does not contain them, because Slack defines their format.
interactions_router = APIRouter(tags=["slack"])


@router.post(
    "/link-codes",
    response_model=LinkCodeView,
    status_code=201,
    responses=problems(CONFLICT),
    summary="Create a Slack link code",
)
async def create_link_code(caller: FullCaller, gateway: GatewayDep, new: NewLinkCode | None = None) -> Reply:
    """Create a link code for the caller. A Slack user who enters it within ten minutes can decide as the caller.

    The user enters `/toolgate link CODE` in Slack. The response is 409 if the organization has no Slack webhook, and
    400 if it has several Slack apps and `webhook_id` is missing.
    """
    webhook_id = new.webhook_id if new else None
    return Reply(await service.create_link_code(gateway, caller, webhook_id), 201, NO_STORE)


@router.get("/links", response_model=list[SlackLinkView], summary="List Slack links")
async def list_slack_links(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the caller's links to Slack accounts, newest first. Admins receive the links of all users."""
    return Reply(await service.list_links(gateway, caller))


LinkIdPath = Annotated[str, Path(description="Id of the link, a UUID.")]


@router.delete(
    "/links/{link_id}", status_code=204, responses=problems(NOT_FOUND), summary="Delete a Slack link"
)
async def delete_slack_link(link_id: LinkIdPath, caller: FullCaller, gateway: GatewayDep) -> NoContent:
    """Delete a link between a Slack account and the caller. Admins can delete the links of all users."""
    await service.delete_link(gateway, caller, link_id)
    return NoContent()


@interactions_router.post("/integrations/slack/{webhook_id}")
async def receive_interaction(webhook_id: str, request: Request, gateway: GatewayDep) -> Reply:
    """Process a button click or a command from Slack. The body is parsed only after its signature was verified."""
    # Slack signs the uncompressed body and never compresses requests, so a compressed request counts as unsigned.
    compressed = request.headers.get("content-encoding", "identity") != "identity"
    headers = {} if compressed else request.headers
    if not SignedRequest.of(headers, b"").has_signature:
        raise await gateway.auth_failures.reject(peer(request), service.invalid_signature())
    body = await request.body()
    signed = SignedRequest.of(headers, body)
    try:
        async with gateway.database.reading() as session:
            webhook = await service.verify_request(session, gateway.vault, gateway.plans, webhook_id, signed)
    except ApiError as error:
        if error.status_code == HTTPStatus.UNAUTHORIZED:
            raise await gateway.auth_failures.reject(peer(request), error) from None
        raise
    match await gateway.parser.run(len(body), partial(read_payload, body)):
        case Click() as click:
            await gateway.slack.run(service.handle_click(gateway, gateway.slack, webhook, click))
        case Command() as command:
            return Reply(
                json.loads(ephemeral_message(await service.handle_command(gateway, webhook, command)))
            )
    return Reply({})
