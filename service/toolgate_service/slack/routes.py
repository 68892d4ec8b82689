"""HTTP for links to Slack: the code that makes one, who is linked, and the end of it."""

from fastapi import APIRouter

from toolgate_service.accounts.caller import AnyCaller, FullCaller, acting
from toolgate_service.gateway import GatewayDep
from toolgate_service.openapi.problems import CONFLICT, NOT_FOUND, problems
from toolgate_service.slack import links
from toolgate_service.slack.codes import make_code
from toolgate_service.slack.schemas import LinkCodeView, NewLinkCode, SlackLinkView
from toolgate_service.web.bodies import StrictRoute
from toolgate_service.web.replies import NO_STORE, NoContent, Reply

router = APIRouter(prefix="/api/slack", tags=["slack"], route_class=StrictRoute)


@router.post("/link-codes", response_model=LinkCodeView, status_code=201, responses=problems(CONFLICT))
async def create_link_code(caller: FullCaller, gateway: GatewayDep, new: NewLinkCode | None = None) -> Reply:
    """Make a code for the caller, shown this once: who types it in that Slack app within ten minutes decides as the caller."""
    async with acting(gateway, caller) as session:
        webhook_id = new.webhook_id if new else None
        code, expires_at = await make_code(session, gateway.vault, caller, webhook_id)
    return Reply(LinkCodeView(code=code, expires_at=expires_at), 201, NO_STORE)


@router.get("/links", response_model=list[SlackLinkView])
async def list_slack_links(caller: AnyCaller, gateway: GatewayDep) -> Reply:
    """Return the caller's own links, one for each app; to an admin everybody's, newest first."""
    async with gateway.database.reading() as session:
        found = await links.list_links(session, caller)
    return Reply([SlackLinkView.model_validate(link, from_attributes=True) for link in found])


@router.delete("/links/{link_id}", status_code=204, responses=problems(NOT_FOUND))
async def delete_slack_link(link_id: str, caller: FullCaller, gateway: GatewayDep) -> NoContent:
    """End the caller's own link, or as an admin anybody's: what is pressed from then on decides nothing."""
    async with acting(gateway, caller) as session:
        await links.unlink(session, caller, link_id)
    return NoContent()
