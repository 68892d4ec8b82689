"""Console pages for the settings of the organization, its API key, its plan, its team, and the user's own account."""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate_service.accounts import service as accounts
from toolgate_service.accounts.schemas import CurrentUser, PasswordChange
from toolgate_service.accounts.sessions import load_current_user
from toolgate_service.billing import service as billing
from toolgate_service.billing.schemas import InvoiceView, ShareView, SubscriptionView
from toolgate_service.console import security
from toolgate_service.console.dependencies import (
    Form,
    PageContext,
    allow_user,
    check_not_repeated,
    form_route,
    page_route,
    require_admin,
    require_key_reader,
)
from toolgate_service.console.templates import read_offset, render_page
from toolgate_service.core.errors import ApiError
from toolgate_service.core.plans import FULL, UNLIMITED, WARN_AT
from toolgate_service.http.dependencies import peer
from toolgate_service.logs.service import TEST_DAYS
from toolgate_service.organizations import repository
from toolgate_service.organizations import service as organizations
from toolgate_service.organizations.ip_allowlist import load_networks
from toolgate_service.organizations.schemas import (
    AllowedNetworksChange,
    KeylessOrganizationView,
    OrganizationChange,
)
from toolgate_service.team import service as team
from toolgate_service.team.schemas import (
    InvitationView,
    MemberView,
    NewInvitation,
    NewInvitationView,
    RoleChange,
)

SETTINGS = "/console/settings"
KEYS = "/console/settings/keys"


async def rename_organization(page: PageContext, form: Form) -> Response:
    """Give the organization the name in the form, and redirect to the settings page."""
    change = OrganizationChange(name=form["name"])
    await organizations.rename_organization(page.gateway, page.caller, change.name)
    return RedirectResponse(page.url(SETTINGS), 303)


async def allow_networks(page: PageContext, form: Form) -> Response:
    """Set the IP networks from which clients may use the organization's API keys. The form contains one per line."""
    change = AllowedNetworksChange(networks=form["networks"].split())
    await organizations.set_allowed_networks(page.gateway, page.caller, change)
    return RedirectResponse(page.url(SETTINGS), 303)


async def show_organization(
    page: PageContext, status: int = 200, *, message: str | None = None, typed: Form | None = None
) -> Response:
    """Show the settings page with the organization's name and allowed IP networks."""
    async with page.gateway.database.reading() as session:
        found = await organizations.get_organization(session, page.caller)
    return await render_page(
        page,
        "settings/organization.html",
        status,
        organization=KeylessOrganizationView.model_validate(found, from_attributes=True),
        test_days=TEST_DAYS,
        networks=load_networks(found.ip_allow_list),
        may_allow_networks=page.gateway.plans[found.plan].ip_allow_list,
        address=page.caller.ip_address,
        message=message,
        typed=typed,
    )


async def show_key(page: PageContext, _form: Form) -> Response:
    """Show the organization's API key in full, and write an audit event about the display."""
    found = await organizations.show_key(page.gateway, page.caller, page.environment)
    return await show_masked_key(page, whole=found.api_key)


async def regenerate_key(page: PageContext, form: Form) -> Response:
    """Replace the organization's API key and show the new key in full. The old key stops working immediately."""

    async def refuse_repetition(session: AsyncSession) -> None:
        old = await repository.organization_key(session, page.caller.organization_id, page.environment)
        check_not_repeated(form, old.id)

    made = await organizations.regenerate_key(
        page.gateway, page.caller, page.environment, first=refuse_repetition
    )
    return await show_masked_key(page, whole=made.api_key, replaced=True)


async def show_masked_key(
    page: PageContext,
    status: int = 200,
    *,
    message: str | None = None,
    whole: str | None = None,
    replaced: bool = False,
) -> Response:
    """Show the page with the organization's API key for one environment.

    The key is masked, unless `whole` contains it in full.
    """
    async with page.gateway.database.reading() as session:
        found = await repository.organization_key(session, page.caller.organization_id, page.environment)
    masked = repository.masked_key(found)
    return await render_page(
        page,
        "settings/keys.html",
        status,
        newest=found.id,
        masked=masked,
        made_at=found.created_at,
        # If the full key was requested but is equal to the masked one, the gateway could not decrypt it, because its
        # secret was lost. The page then reports that the key is unreadable.
        whole=None if whole == masked else whole,
        unreadable=whole == masked,
        replaced=replaced,
        message=message,
    )


ACCOUNT = "/console/settings/account"
PASSWORD = f"{ACCOUNT}/password"
PASSWORDS_DIFFER = "The two new passwords differ; nothing was changed"


async def change_password(page: PageContext, form: Form) -> Response:
    """Change the user's password. All sessions of the user end, and only this browser receives a new session."""
    if form["new_password"] != form["repeated"]:
        return await show_account(page, 400, message=PASSWORDS_DIFFER)
    change = PasswordChange(current_password=form["current_password"], new_password=form["new_password"])
    made = await accounts.change_password(page.gateway, page.caller, change, peer(page.request))
    response = RedirectResponse(page.url(ACCOUNT, changed=1), 303)
    security.set_session_cookie(response, page.request, page.gateway, made.access_token)
    return response


async def show_account(page: PageContext, status: int = 200, *, message: str | None = None) -> Response:
    """Show the settings page of the user's own account."""
    async with page.gateway.database.reading() as session:
        user = await load_current_user(session, page.caller)
    return await render_page(
        page,
        "settings/account.html",
        status,
        user=CurrentUser.model_validate(user, from_attributes=True),
        changed="changed" in page.request.query_params and message is None,
        message=message,
    )


TEAM = "/console/settings/team"
PAGE_SIZE = 50


async def invite_user(page: PageContext, form: Form) -> Response:
    """Invite a user to the organization.

    If the gateway cannot send e-mail, the response shows the invitation link, which is never shown again.
    """

    async def refuse_repetition(session: AsyncSession) -> None:
        check_not_repeated(form, _newest(await _list_invitations(session, page)))

    new = NewInvitation.model_validate({"email": form["email"], "role": form["role"]})
    base_url = str(page.request.base_url)
    made = await team.invite(page.gateway, page.caller, new, base_url, first=refuse_repetition)
    return await show_team(page, made=made)


async def revoke_invitation(page: PageContext, _form: Form) -> Response:
    """Revoke an invitation. Its link stops working immediately."""
    invitation_id = page.param("invitation_id")
    await team.revoke_invitation(page.gateway, page.caller, invitation_id)
    return RedirectResponse(page.url(TEAM), 303)


async def change_role(page: PageContext, form: Form) -> Response:
    """Change the role of a team member and end the member's sessions."""
    change = RoleChange.model_validate({"role": form["role"]})
    user_id = page.param("user_id")
    await team.change_role(page.gateway, page.caller, user_id, change.role)
    return RedirectResponse(page.url(TEAM), 303)


async def remove_member(page: PageContext, _form: Form) -> Response:
    """Remove a team member from the organization and end the member's sessions."""
    await team.remove(page.gateway, page.caller, page.param("user_id"))
    return RedirectResponse(page.url(TEAM), 303)


async def _list_invitations(session: AsyncSession, page: PageContext) -> Sequence[InvitationView]:
    found = await team.list_open_invitations(session, page.caller.organization_id)
    return [InvitationView.model_validate(one, from_attributes=True) for one in found]


async def show_team(
    page: PageContext,
    status: int = 200,
    *,
    message: str | None = None,
    typed: Form | None = None,
    made: NewInvitationView | None = None,
) -> Response:
    """Show the team page with all members. Administrators also see the invitations that are still open."""
    offset = read_offset(page)
    async with page.gateway.database.reading() as session:
        found = await team.list_users(
            session, page.caller.organization_id, offset=offset, at_most=PAGE_SIZE + 1
        )
        waiting = await _list_invitations(session, page) if page.caller.is_admin else ()
    return await render_page(
        page,
        "settings/team.html",
        status,
        people=[MemberView.model_validate(one, from_attributes=True) for one in found[:PAGE_SIZE]],
        waiting=waiting,
        newest=_newest(waiting),
        made=made,
        message=message,
        typed=typed or Form([]),
        offset=offset,
        next_offset=offset + PAGE_SIZE if len(found) > PAGE_SIZE else None,
    )


def _newest(waiting: Sequence[InvitationView]) -> str:
    return waiting[0].id if waiting else ""


#: Number of decimal places by currency, as documented by the payment provider. Currencies that are not listed have two.
_DIGITS = {
    **dict.fromkeys(("bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga", "pyg", "rwf", "vnd", "vuv"), 0),
    **dict.fromkeys(("xaf", "xof", "xpf"), 0),
    **dict.fromkeys(("bhd", "jod", "kwd", "omr", "tnd"), 3),
}


def format_money(amount: int, currency: str) -> str:
    """Format an amount in the currency's smallest unit, such as cents: ``2900`` and ``eur`` become ``29.00 EUR``."""
    digits = _DIGITS.get(currency.lower(), 2)
    return f"{Decimal(amount).scaleb(-digits):,.{digits}f} {currency.upper()}"


PLAN = "/console/settings/plan"
#: Path of the upgrade link in error responses of the API.
UPGRADE = "/console/plan"
#: Maximum number of invoices on the page: five years of monthly invoices.
MAX_INVOICES = 60
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Meter:
    """Bar that shows which share of a plan limit is used.

    Attributes:
        name: Label of the bar, such as "Agents".
        used: Current usage together with the limit.
        per: Period of the limit, such as "this month"; empty if the limit has no period.
    """

    name: str
    used: ShareView
    per: str = ""

    @property
    def percent(self) -> str:
        """Used share of the limit in percent, as a number without the percent sign."""
        return f"{self.used.percentage:g}"

    @property
    def filled(self) -> str:
        """Width of the bar in percent, as text: at most 100, and at least 1 if anything is used."""
        return f"{min(FULL, max(self.used.percentage, 1 if self.used.current else 0)):g}"

    @property
    def standing(self) -> str:
        """CSS class: ``full`` if the limit is reached, ``near`` from `WARN_AT` percent on, otherwise empty."""
        if self.used.percentage >= FULL:
            return "full"
        return "near" if self.used.percentage >= WARN_AT else ""


async def show_plan(page: PageContext) -> Response:
    """Show the page with the organization's plan, usage and invoices."""
    organization_id, plans = page.caller.organization_id, page.gateway.plans
    async with page.gateway.database.reading() as session:
        current = await billing.get_current_plan(session, plans, organization_id)
        people = await team.count_users(session, organization_id)
        bills = await billing.list_invoices(session, organization_id, limit=MAX_INVOICES)
        subscription = await _subscription(billing.get_subscription(session, plans, organization_id))
    usage = billing.usage_view(plans[current.current_plan], current.usage)
    invoices = [InvoiceView.model_validate(one, from_attributes=True) for one in bills]
    return await render_page(
        page,
        "settings/plan.html",
        # Show prices only if a payment provider is configured. Otherwise the operator chooses the plan.
        is_sold=page.gateway.provider_signature is not None,
        plan=current.plan_details,
        all_plans=current.all_plans,
        rates={name: one.requests_per_minute for name, one in plans.items()},
        meters=(
            Meter("Agents", usage.agents),
            Meter("Log entries", usage.logs, "this month"),
            Meter("Users", billing.share(people, current.plan_details.limits.max_team_members)),
        ),
        warnings=usage.warnings,
        subscription=subscription,
        invoices=[(one, format_money(one.amount, one.currency)) for one in invoices],
        unlimited=UNLIMITED,
    )


async def redirect_to_plan(page: PageContext) -> Response:
    """Redirect to the plan page. Error responses of the API contain the address of this route as their upgrade link."""
    return RedirectResponse(page.url(PLAN), 303)


async def _subscription(reading: Awaitable[SubscriptionView]) -> SubscriptionView | None:
    try:
        return await reading
    except ApiError as error:
        if error.status_code != _NOT_FOUND:
            raise
        return None


ROUTES: Sequence[Route] = (
    page_route(SETTINGS, show_organization),
    form_route(
        f"{SETTINGS}/name",
        rename_organization,
        authorize=require_admin,
        on_error=show_organization,
        keeps_input=True,
    ),
    form_route(
        f"{SETTINGS}/networks",
        allow_networks,
        authorize=require_admin,
        on_error=show_organization,
        keeps_input=True,
    ),
    page_route(KEYS, show_masked_key),
    form_route(f"{KEYS}/show", show_key, authorize=require_key_reader),
    form_route(f"{KEYS}/regenerate", regenerate_key, authorize=require_admin, on_error=show_masked_key),
    page_route(ACCOUNT, show_account),
    form_route(PASSWORD, change_password, authorize=allow_user, on_error=show_account),
    page_route(TEAM, show_team),
    form_route(
        f"{TEAM}/invitations", invite_user, authorize=require_admin, on_error=show_team, keeps_input=True
    ),
    form_route(f"{TEAM}/invitations/{{invitation_id}}/revoke", revoke_invitation, authorize=require_admin),
    form_route(f"{TEAM}/{{user_id}}/role", change_role, authorize=require_admin, on_error=show_team),
    form_route(f"{TEAM}/{{user_id}}/remove", remove_member, authorize=require_admin, on_error=show_team),
    page_route(PLAN, show_plan),
)
