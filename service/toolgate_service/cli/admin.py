"""`toolgate admin`: commands with which an operator changes the gateway's database directly.

Each command reads the settings, makes one change and returns the lines to print. If it fails, it raises `StartError`
with a one-line message for the operator.

The command `rotate-secret` keeps the former secret until the operator runs it again with `--finish`. Until then, either
the current or the former secret can decrypt each encrypted value.
"""

import secrets
from collections import Counter
from datetime import timedelta

from pydantic import ValidationError
from sqlmodel import col, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts import service as accounts
from toolgate_service.accounts.models import User
from toolgate_service.accounts.repository import find_user_by_email, find_user_by_id
from toolgate_service.accounts.schemas import Registration
from toolgate_service.accounts.sessions import SESSION_LIFETIME
from toolgate_service.audit import service as audit
from toolgate_service.billing.events import BillingTerms, apply_waiting_events, customer_lock
from toolgate_service.billing.service import current_subscription, is_entitled, update_activation, waive_debts
from toolgate_service.cli.context import (
    Lines,
    OperatorSession,
    change_organization,
    display_organization,
    run_with_database,
)
from toolgate_service.core.crypto import Passwords, Vault, begin_rotation, finish_rotation, secret_path
from toolgate_service.core.errors import ApiError, StartError
from toolgate_service.core.plans import MAX_ID, MAX_RATE, plan_name
from toolgate_service.core.settings import Settings, is_embedded
from toolgate_service.db.database import ACCOUNTS
from toolgate_service.decisions.service import ContextRetention
from toolgate_service.jobs.scheduler import RetentionHalted
from toolgate_service.maintenance import prune
from toolgate_service.organizations import service as organizations
from toolgate_service.organizations.models import OPERATOR, PAYMENT, Organization
from toolgate_service.secret_check import SEALED_MODELS, SealedModel, verified_vault
from toolgate_service.transparency.models import TransparencyLog

#: Name of the database lock that a command holds while it replaces the gateway's secret.
SECRET = "secret"  # noqa: S105 - the name of a lock

RESTART = "restart every gateway that does not use the new secret yet; a gateway uses the former secret until it is restarted"
AGAIN = (
    "when all gateways use the new secret, run this command again; unset TOOLGATE_SECRET_PREVIOUS as soon as the "
    "command reports 0 newly encrypted values and all tokens that were signed with the former secret have expired"
)
KNOWN = (
    "users stay signed in: tokens that were signed with the former secret stay valid until they expire, at most "
    f"{SESSION_LIFETIME.days} days from now"
)
LEAKED = "all users must sign in again, because TOOLGATE_SECRET_PREVIOUS_LEAKED is set"


def rotate_secret(*, finish: bool = False, discard_unreadable: bool = False) -> Lines:
    """Encrypt all stored secrets, such as API keys, with a new secret of the gateway.

    An embedded gateway stores its secret in a file, and this command creates the new secret. For other gateways, the
    operator first sets TOOLGATE_SECRET to the new secret and TOOLGATE_SECRET_PREVIOUS to the former one.

    Args:
        finish: Delete the former secret, which ends the rotation.
        discard_unreadable: Delete the values that no known secret can decrypt, for example because a secret was lost.
    """

    async def work(operator: OperatorSession) -> Lines:
        if discard_unreadable:
            return await _discard_unreadable(operator)
        is_in_file = operator.settings.secret is None and is_embedded(operator.settings.database_url)
        _refuse_without_secrets(operator.settings, is_in_file=is_in_file, finish=finish)
        # If two operators run this command at the same time, the second one waits for the first.
        async with operator.database.writing(SECRET, patient=True) as session:
            if is_in_file:
                # Check the secret before the rotation changes its file: if the secret cannot decrypt any stored value,
                # it is the wrong one, and the command fails here.
                _refuse_a_wrong_secret(await _reseal(session, Vault.of(operator.settings)))
            begun = is_in_file and not finish and begin_rotation(secret_path())
            vault = Vault.of(operator.settings)
            counts = await _reseal(session, vault)
            _refuse_a_wrong_secret(counts)
            await _audit(session, finish=finish)
        if is_in_file and finish:
            finish_rotation(secret_path())
        tokens = LEAKED if operator.settings.secret_previous_leaked else KNOWN
        return [_summary(counts), *_next_steps(tokens, is_in_file=is_in_file, begun=begun, finish=finish)]

    return run_with_database(work)


async def _discard_unreadable(operator: OperatorSession) -> Lines:
    vault = Vault.of(operator.settings)
    discarded = 0
    async with operator.database.writing(SECRET) as session:
        for model in SEALED_MODELS:
            # Keep the key of a transparency log even if it is unreadable, because the log cannot get another key.
            if model is TransparencyLog:
                continue
            rows = await session.exec(select(model.id, model.organization_id, model.ciphertext))
            for row, organization, sealed in rows.all():
                discarded += await _discard_one(session, vault, model, row, organization, sealed)
        if discarded:
            for organization_id in (await session.exec(select(Organization.id))).all():
                audit.record_outside(session, organization_id, "gateway.sealed_values_discarded")
    return [
        f"deleted {discarded} encrypted values that none of the known secrets can decrypt",
        (
            "API keys among the deleted values still work, but cannot be shown again; create new signing secrets for the "
            "webhooks; all users must sign in again"
        ),
    ]


def _refuse_without_secrets(settings: Settings, *, is_in_file: bool, finish: bool) -> None:
    if is_in_file:
        if finish and not settings.former_secrets():
            raise StartError(
                "no rotation of the secret is in progress; start one with 'toolgate admin rotate-secret'"
            )
    elif settings.secret is None or settings.secret_previous in {None, settings.secret}:
        raise StartError(
            "set TOOLGATE_SECRET to the new secret and TOOLGATE_SECRET_PREVIOUS to the former one, for this command and "
            "for every gateway; set them as environment variables, never on a command line"
        )


async def _reseal(session: AsyncSession, vault: Vault) -> Counter[str]:
    counts: Counter[str] = Counter()
    for model in SEALED_MODELS:
        rows = await session.exec(select(model.id, model.organization_id, model.ciphertext))
        for row, organization, sealed in rows.all():
            outcome = await _reseal_one(session, vault, model, row, organization, sealed)
            if outcome is not None:
                counts[outcome] += 1
    return counts


async def _reseal_one(
    session: AsyncSession, vault: Vault, model: type[SealedModel], row: str, organization: str, sealed: bytes
) -> str | None:
    """Encrypt one value with the current secret, and return the result as a word.

    The result is `resealed` if the value was encrypted again, `present` if it was already encrypted with the current
    secret, `lost` if no known secret can decrypt it, and None if it is empty. A value is empty after it was discarded
    or its row was deleted.
    """
    while sealed:
        resealed = vault.resealed(sealed, table=model.__name__, row=row, organization=organization)
        if resealed is None:
            return "lost"
        if resealed == sealed:
            return "present"
        if await _replace(session, model, row, sealed, resealed):
            return "resealed"
        # A running gateway has replaced the encrypted value in the meantime: read the new value and repeat.
        sealed = await _sealed(session, model, row)
    return None


async def _discard_one(
    session: AsyncSession, vault: Vault, model: type[SealedModel], row: str, organization: str, sealed: bytes
) -> bool:
    """Delete an encrypted value if no known secret can decrypt it. Return True if it was deleted."""
    while sealed and vault.open(sealed, table=model.__name__, row=row, organization=organization) is None:
        if await _replace(session, model, row, sealed, b""):
            return True
        sealed = await _sealed(session, model, row)
    return False


async def _replace(
    session: AsyncSession, model: type[SealedModel], row: str, sealed: bytes, by: bytes
) -> bool:
    """Replace the encrypted value `sealed` with `by`. Return False if the stored value is no longer `sealed`."""
    query = update(model).where(col(model.id) == row, col(model.ciphertext) == sealed).values(ciphertext=by)
    return (await session.exec(query)).rowcount == 1


async def _sealed(session: AsyncSession, model: type[SealedModel], row: str) -> bytes:
    """Return the encrypted value that a row currently contains; empty if the row was deleted."""
    return (await session.exec(select(model.ciphertext).where(model.id == row))).first() or b""


def _refuse_a_wrong_secret(counts: Counter[str]) -> None:
    if counts["lost"] and not counts["present"] + counts["resealed"]:
        raise StartError(
            f"neither the current secret nor TOOLGATE_SECRET_PREVIOUS can decrypt any of the {counts['lost']} encrypted "
            "values, so nothing was changed; set TOOLGATE_SECRET_PREVIOUS to the secret that encrypted them, or, if that "
            "secret is lost, delete the values with --discard-unreadable"
        )


async def _audit(session: AsyncSession, *, finish: bool) -> None:
    kind = "gateway.secret_rotation_finished" if finish else "gateway.secret_rotated"
    for organization_id in (await session.exec(select(Organization.id))).all():
        audit.record_outside(session, organization_id, kind)


def _summary(counts: Counter[str]) -> str:
    line = f"encrypted {counts['resealed']} values with the new secret; {counts['present']} values were already encrypted with it"
    if counts["lost"]:
        line += (
            f"; {counts['lost']} values cannot be decrypted and were not changed: API keys among these values still "
            "work, but cannot be shown"
        )
    return line


def _next_steps(tokens: str, *, is_in_file: bool, begun: bool, finish: bool) -> Lines:
    if not is_in_file:
        return [RESTART, tokens, AGAIN]
    if finish:
        return ["deleted the former secret: users whose tokens were signed with it must sign in again"]
    return [
        f"stored the new secret in {str(secret_path())!r}"
        if begun
        else "a rotation of the secret was already in progress, so this command used the new secret of that rotation",
        RESTART,
        tokens,
        "when all gateways use the new secret, run 'toolgate admin rotate-secret --finish', which deletes the former secret",
    ]


def set_plan(name: str, plan: str) -> Lines:
    """Change the plan of an organization immediately."""
    try:
        chosen = plan_name(plan)
    except ValueError as error:
        raise StartError(str(error)) from None

    async def change(operator: OperatorSession, session: AsyncSession, organization: Organization) -> Lines:
        before = organization.plan
        plans = operator.settings.plans
        if not organizations.change_plan(session, plans, organization, chosen, by="operator"):
            return [f"{display_organization(organization)} already has the plan {chosen}"]
        lines = [f"{display_organization(organization)} now has the plan {chosen}; before, it had {before}"]
        subscription = await current_subscription(session, organization)
        if subscription is not None and is_entitled(subscription):
            lines.append(
                f"the subscription {subscription.provider_subscription_id!r} of the organization continues: the payment "
                "provider's next event about this subscription changes the plan again"
            )
        return lines

    return change_organization(name, change)


def set_rate(name: str, requests_per_minute: int | None) -> Lines:
    """Set the rate limit of an organization in requests per minute. None restores the limit of its plan."""
    if requests_per_minute is not None and not 1 <= requests_per_minute <= MAX_RATE:
        raise StartError(
            f"invalid rate limit {requests_per_minute!r}: expected 1 to {MAX_RATE} requests per minute"
        )

    async def change(operator: OperatorSession, session: AsyncSession, organization: Organization) -> Lines:
        before, organization.requests_per_minute = organization.requests_per_minute, requests_per_minute
        changes = {"from": before, "to": requests_per_minute}
        audit.record_outside(session, organization.id, "organization.rate_changed", changes=changes)
        rate = requests_per_minute or operator.settings.plans[organization.plan].requests_per_minute
        source = (
            "an individual rate limit"
            if requests_per_minute
            else f"the rate limit of the plan {organization.plan}"
        )
        return [f"{display_organization(organization)} now has {source}: {rate} requests per minute"]

    return change_organization(name, change)


def activate(name: str) -> Lines:
    """Reactivate an organization that was deactivated for any reason, and waive its failed payments."""

    async def change(_: OperatorSession, session: AsyncSession, organization: Organization) -> Lines:
        await waive_debts(session, organization)
        if not await organizations.reactivate(session, organization, OPERATOR, PAYMENT):
            return [
                f"{display_organization(organization)} was already active; its failed payments are waived"
            ]
        return [f"{display_organization(organization)} is active again; its failed payments are waived"]

    return change_organization(name, change)


def deactivate(name: str) -> Lines:
    """Deactivate an organization immediately. Only the command `activate` reactivates it; a payment does not."""

    async def change(_: OperatorSession, session: AsyncSession, organization: Organization) -> Lines:
        if not await organizations.deactivate(session, organization, OPERATOR):
            return [f"{display_organization(organization)} was already deactivated by an operator"]
        what = (
            "the API keys of the organization are rejected and its users can only read, until you run 'toolgate admin "
            "activate'"
        )
        return [f"{display_organization(organization)} is now deactivated: {what}"]

    return change_organization(name, change)


def link_customer(name: str, customer_id: str | None, *, replace: bool = False) -> Lines:
    """Link an organization to a customer of the payment provider. A `customer_id` of None removes the link.

    Events that arrived for this customer before it was linked are applied now. If the organization is already linked to
    another customer, `replace` must be True, and the new link replaces the old one.
    """
    if customer_id is not None and not _is_customer(customer_id):
        raise StartError(
            f"invalid customer id {customer_id!r}: expected an id of the payment provider such as cus_…"
        )

    async def change(operator: OperatorSession, session: AsyncSession, organization: Organization) -> Lines:
        grace = timedelta(days=operator.settings.payment_grace_days)
        terms = BillingTerms(operator.settings.plans, grace)
        before = organization.provider_customer_id
        if customer_id == before:
            linked = (
                f"already linked to the customer {before} of the payment provider"
                if before
                else "not linked to a customer of the payment provider"
            )
            return [f"{display_organization(organization)} is {linked}"]
        await _refuse_taken(session, organization, customer_id, replace=replace)
        organization.provider_customer_id = customer_id
        await session.flush()
        changes = {"from": before, "to": customer_id}
        audit.record_outside(session, organization.id, "organization.customer_linked", changes=changes)
        applied = await apply_waiting_events(session, terms, organization) if customer_id else 0
        await update_activation(session, organization, grace)
        linked = (
            f"now linked to the customer {customer_id} of the payment provider"
            if customer_id
            else "no longer linked to a customer of the payment provider"
        )
        return [
            f"{display_organization(organization)} is {linked}",
            f"applied {applied} earlier events of the customer; the organization has the plan {organization.plan} and "
            + ("is active" if organization.is_active else "is not active"),
        ]

    return change_organization(name, change, customer_lock(customer_id))


async def _refuse_taken(
    session: AsyncSession, organization: Organization, customer_id: str | None, *, replace: bool
) -> None:
    if customer_id is None:
        return
    query = select(Organization).where(Organization.provider_customer_id == customer_id)
    other = (await session.exec(query)).first()
    if other is not None:
        raise StartError(
            f"the customer {customer_id!r} of the payment provider is linked to {display_organization(other)}; first "
            "unlink the customer from that organization with --unlink"
        )
    if organization.provider_customer_id is not None and not replace:
        raise StartError(
            f"{display_organization(organization)} is linked to the customer {organization.provider_customer_id!r}; to "
            f"link it to {customer_id!r} instead, add --replace"
        )


def _is_customer(text: str) -> bool:
    return 1 <= len(text) <= MAX_ID and text.isascii() and text.isprintable() and " " not in text


def create_organization(name: str, email: str) -> Lines:
    """Create an organization with an administrator, and return a link with which the administrator sets a password.

    The organization gets the default plan. The command works even if ``TOOLGATE_REGISTRATION`` forbids registration.
    """

    async def work(operator: OperatorSession) -> Lines:
        registration = _registration(name, email)
        password_hash = await Passwords(threads=1, queue=0).hash(registration.password)
        vault = await _vault(operator)
        async with operator.database.writing(ACCOUNTS) as session:
            try:
                user = await organizations.create_organization(
                    session, vault, registration, password_hash, operator.settings.default_plan
                )
            except ApiError as error:
                raise StartError(f"{email!r}: {error.detail}") from None
            link = await _issue_link(session, user, operator.settings)
        plan = operator.settings.default_plan
        return [
            f"created {registration.organization_name!r} on the {plan} plan; its admin is {user.email}",
            *link,
        ]

    return run_with_database(work)


def reset_password(email: str) -> Lines:
    """Return a link with which a user sets a new password. It works once and within one hour.

    Earlier links for this user stop working.
    """

    async def work(operator: OperatorSession) -> Lines:
        async with operator.database.reading() as session:
            found = await find_user_by_email(session, email)
        if found is None:
            raise StartError(f"no user has the e-mail address {email!r}; check the spelling of the address")
        async with operator.database.writing(found.organization_id) as session:
            user = await find_user_by_id(session, found.id)
            if user is None:
                raise StartError(
                    f"the user with the e-mail address {email!r} was removed while this command ran"
                )
            return await _issue_link(session, user, operator.settings)

    return run_with_database(work)


async def _vault(operator: OperatorSession) -> Vault:
    vault = await verified_vault(operator.database, operator.settings)
    if vault is None:
        # Fail instead of creating a secret, because it would differ from the one that the gateway uses.
        raise StartError(
            f"the gateway's secret is not in {str(secret_path())!r}; run this command as the user who runs the gateway, "
            "or set TOOLGATE_SECRET"
        )
    return vault


def _registration(name: str, email: str) -> Registration:
    try:
        # The administrator sets a password with the link. Until then, the account has a random password, which is not
        # stored or shown.
        return Registration(organization_name=name, email=email, password=secrets.token_urlsafe(32))
    except ValidationError as error:
        problem = error.errors()[0]
        option = {"organization_name": "NAME", "email": "EMAIL"}[str(problem["loc"][0])]
        raise StartError(f"{option}: {problem['msg'].removeprefix('Value error, ')}") from None


async def _issue_link(session: AsyncSession, user: User, settings: Settings) -> Lines:
    token = await accounts.create_reset(session, user)
    audit.record_outside(session, user.organization_id, "user.password_reset_issued", resource_id=user.id)
    link = accounts.build_link(settings.public_url or "", accounts.RESET_PAGE, token)
    hours = int(accounts.RESET_LIFETIME.total_seconds() // 3600)
    lines = [
        link,
        f"open this link within {hours} hour to set the password of {user.email}; the link works only once",
    ]
    if settings.public_url is None:
        lines.append(
            "the link contains no host name, because TOOLGATE_PUBLIC_URL is not set: add the gateway's URL in front of the link"
        )
    return lines


def prune_now(*, force: bool = False) -> Lines:
    """Delete all rows whose retention period has ended.

    If the clock has recently jumped forward, nothing is deleted for a day, because the clock may be wrong. With
    `force`, the rows are deleted nevertheless.
    """

    async def work(operator: OperatorSession) -> Lines:
        settings = operator.settings
        try:
            contexts = ContextRetention(settings.decision_context_days)
            counts = await prune(
                operator.database, settings.plans, settings.prune_batch, contexts, force=force
            )
        except RetentionHalted as halted:
            raise StartError(
                f"{halted}; if the clock is correct, run the command again with --force"
            ) from None
        removed = [f"{count} {table}" for table, count in sorted(counts.items()) if count]
        return [
            f"removed {', '.join(removed)}"
            if removed
            else "removed no rows, because no row is older than its retention period"
        ]

    return run_with_database(work)
