"""HTTP for what Slack sends: presses on buttons, and the command by which a member says who they are."""

import json
from functools import partial
from http import HTTPStatus

from fastapi import APIRouter, Request

from toolgate_service.accounts.caller import peer
from toolgate_service.errors import ApiError
from toolgate_service.gateway import Gateway, GatewayDep
from toolgate_service.slack.clicks import decide
from toolgate_service.slack.links import link
from toolgate_service.slack.payloads import Click, Command, read_sent
from toolgate_service.slack.replies import reply
from toolgate_service.slack.signature import Signed
from toolgate_service.slack.standing import Place, not_signed, refuse, signed_place, standing
from toolgate_service.web.replies import Reply

#: beside the OpenAPI document: the shapes are Slack's
router = APIRouter(tags=["slack"])

HELP = (
    "`/toolgate link CODE` links you to your account, so that you can decide here; `toolgate slack link` on your "
    "machine makes the code."
)


@router.post("/integrations/slack/{webhook_id}")
async def take_interaction(webhook_id: str, request: Request, gateway: GatewayDep) -> Reply:
    """Take what Slack signed. The signature is judged before a word of the body is read."""
    # What was packed is not what was signed; Slack packs nothing.
    packed = request.headers.get("content-encoding", "identity") != "identity"
    headers = {} if packed else request.headers
    if not Signed.of(headers, b"").is_complete:
        raise await gateway.auth_failures.reject(peer(request), not_signed())
    body = await request.body()
    sent = Signed.of(headers, body)
    try:
        async with gateway.database.reading() as session:
            place = await signed_place(session, gateway.vault, gateway.plans, webhook_id, sent)
    except ApiError as error:
        if error.status_code == HTTPStatus.UNAUTHORIZED:
            raise await gateway.auth_failures.reject(peer(request), error) from None
        raise
    match await gateway.parser.run(len(body), partial(read_sent, body)):
        case Click() as click:
            await gateway.slack.in_time(decide(gateway, place, click))
        case Command() as command:
            return Reply(json.loads(reply(await _obeyed(gateway, place, command))))
    return Reply({})


async def _obeyed(gateway: Gateway, place: Place, command: Command) -> str:
    verb, _, code = command.text.strip().partition(" ")
    if verb.lower() != "link" or not code.strip():
        return HELP
    async with gateway.database.writing(place.organization_id) as session:
        found = await standing(session, place.webhook_id)
        if found is None:
            raise ApiError(403, "The webhook was deleted")
        refuse(gateway.plans, *found)
        return await link(session, gateway.vault, found[0], place.secret_id, command.who, code)
