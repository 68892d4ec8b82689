"""Who does not pay is stopped after a grace, and goes on once paid; an operator's word stays (decisions §11)."""

import asyncio
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from support.admin import done
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.provider import DAY, SECRET, deliver, event, fresh, invoice, seconds, subscription, tell
from support.shapes import refused
from support.tables import execute, rows
from support.waiting import until

from toolgate_service.billing.service import deactivate_overdue
from toolgate_service.db.database import open_database

FAILED = "invoice.payment_failed"
PAID = "invoice.paid"
CREATED = "customer.subscription.created"
UPDATED = "customer.subscription.updated"
DELETED = "customer.subscription.deleted"
HOUR = 3600


def upkeep(gateway: LiveGateway, grace: timedelta = timedelta(days=7)) -> int:
    """Do the step that a gateway does every so often, on its database while it runs."""

    async def step() -> int:
        database = open_database(gateway.database_url)
        await database.start()
        try:
            return await deactivate_overdue(database, grace)
        finally:
            await database.close()

    return asyncio.run(step())


def active(owner: Owner) -> bool:
    found: bool = owner.http.get("/api/organization").json()["is_active"]
    return found


def changes(gateway: LiveGateway, owner: Owner) -> list[tuple[object, ...]]:
    """Return every change of the organization's activity: who, what and why."""
    query = (
        "SELECT user_id, kind, changes FROM audit_entries WHERE organization_id = ? "
        "AND kind IN ('organization.activated', 'organization.deactivated') ORDER BY created_at, id"
    )
    return rows(gateway, query, owner.user["organization_id"])


def test_a_failed_payment_stops_an_organization_only_after_its_grace(
    billing: LiveGateway, payer: Owner, customer: str
) -> None:
    """Six days after the first failure nothing happens; after seven the organization is not active, and that is audited."""
    about = invoice(customer)
    tell(billing.url, FAILED, about, created=seconds() - 6 * DAY)
    upkeep(billing)
    assert active(payer)
    tell(billing.url, FAILED, invoice(customer), created=seconds() - 7 * DAY - 60)
    assert not active(payer)
    assert changes(billing, payer) == [(None, "organization.deactivated", '{"cause":"payment"}')]


def test_the_grace_passes_without_any_event(billing: LiveGateway, payer: Owner, customer: str) -> None:
    """The periodic step finds who is due by now, once, and leaves all others."""
    tell(billing.url, FAILED, invoice(customer), created=seconds() - 3 * DAY)
    upkeep(billing)
    assert active(payer)
    upkeep(billing, timedelta(days=2))
    assert not active(payer)
    upkeep(billing, timedelta(days=2))
    assert len(changes(billing, payer)) == 1


def test_the_next_check_and_the_next_change_are_refused(
    billing: LiveGateway, payer: Owner, customer: str
) -> None:
    """Keys get 401, changes 403, both on the very next request; reading and logging in go on (spec §5, decisions §9)."""
    bot = payer.agent()
    payer.permit(bot, "a")
    assert payer.check(bot, "a").json()["allowed"] is True
    tell(billing.url, FAILED, invoice(customer), created=seconds() - 8 * DAY)
    refused(payer.check(bot, "a"), 401, "Organization is not active")
    refused(payer.log(bot, "a"), 401, "Organization is not active")
    refused(payer.http.post("/api/agents", json={"name": "x"}), 403, "Organization is not active")
    assert payer.http.get("/api/billing/invoices").status_code == 200
    with payer.login() as again:
        assert again.get("/api/billing/plan").status_code == 200


def test_payment_sets_it_back(billing: LiveGateway, payer: Owner, customer: str) -> None:
    """The very next check passes again."""
    bot = payer.agent()
    payer.permit(bot, "a")
    about = invoice(customer)
    tell(billing.url, FAILED, about, created=seconds() - 8 * DAY)
    assert payer.check(bot, "a").status_code == 401
    tell(billing.url, PAID, about | {"status": "paid"})
    assert payer.check(bot, "a").json()["allowed"] is True
    assert [kind for _, kind, _ in changes(billing, payer)] == [
        "organization.deactivated",
        "organization.activated",
    ]


def test_payment_of_one_invoice_leaves_what_another_owes(
    billing: LiveGateway, payer: Owner, customer: str
) -> None:
    """All that failed must be paid; what was voided is owed no longer."""
    first, second = invoice(customer), invoice(customer)
    for about in (first, second):
        tell(billing.url, FAILED, about, created=seconds() - 8 * DAY)
    tell(billing.url, PAID, first | {"status": "paid"})
    assert not active(payer)
    tell(billing.url, "invoice.voided", second | {"status": "void"})
    assert active(payer)


def test_payment_wakes_nobody_whom_an_operator_stopped(
    billing: LiveGateway, payer: Owner, customer: str
) -> None:
    """Whatever comes from the provider, an operator's word stays until the operator takes it back."""
    about = invoice(customer)
    tell(billing.url, FAILED, about, created=seconds() - 8 * DAY)
    done(billing, "deactivate", payer.email)
    tell(billing.url, PAID, about | {"status": "paid"})
    tell(billing.url, CREATED, subscription(customer))
    upkeep(billing)
    assert not active(payer)
    done(billing, "activate", payer.email)
    assert active(payer)


def test_an_operators_word_forgives_what_was_owed_until_now(
    billing: LiveGateway, payer: Owner, customer: str
) -> None:
    """An organization that was activated by hand stays active; the next failure begins a grace of its own."""
    about = invoice(customer)
    tell(billing.url, FAILED, about, created=seconds() - 8 * DAY)
    done(billing, "activate", payer.email)
    upkeep(billing)
    assert active(payer)
    tell(billing.url, FAILED, about, created=seconds() - DAY)
    upkeep(billing)
    assert active(payer)
    upkeep(billing, timedelta(hours=23))
    assert not active(payer)


@pytest.mark.parametrize("status", ["past_due", "unpaid"])
def test_a_subscription_that_is_not_paid_counts_as_well(
    billing: LiveGateway, payer: Owner, customer: str, status: str
) -> None:
    """Also where the provider was not asked to tell of invoices; the grace runs from the first word of it."""
    about = subscription(customer)
    tell(billing.url, CREATED, about, created=seconds() - 9 * DAY)
    tell(billing.url, UPDATED, about | {"status": status}, created=seconds() - 8 * DAY)
    assert not active(payer)
    assert payer.http.get("/api/organization").json()["plan"] == "pro"
    tell(billing.url, UPDATED, about)
    assert active(payer)


def test_an_expired_trial_stops_an_organization(billing: LiveGateway, payer: Owner, customer: str) -> None:
    """A trial has no grace but the hour in which the provider may tell what became of it."""
    about = subscription(customer, status="trialing", trial_end=seconds() + DAY)
    tell(billing.url, CREATED, about, created=seconds() - 9 * DAY)
    upkeep(billing)
    assert active(payer)
    tell(billing.url, UPDATED, about | {"trial_end": seconds() - HOUR + 600}, created=seconds() - 8 * DAY)
    upkeep(billing)
    assert active(payer)
    tell(billing.url, UPDATED, about | {"trial_end": seconds() - HOUR - 10}, created=seconds() - 7 * DAY)
    assert not active(payer)
    tell(billing.url, UPDATED, about | {"status": "active"})
    assert active(payer)


def test_the_trial_passes_without_any_event(billing: LiveGateway, payer: Owner, customer: str) -> None:
    """The periodic step finds a trial that has run out."""
    about = subscription(customer, status="trialing", trial_end=seconds() + DAY)
    tell(billing.url, CREATED, about)
    organization = payer.user["organization_id"]
    long_ago = "2026-01-01T00:00:00.000000Z"
    execute(
        billing,
        "UPDATE subscriptions SET trial_ends_at = ? WHERE organization_id = ?",
        long_ago,
        organization,
    )
    upkeep(billing)
    assert not active(payer)


ENDS = {
    "paused": ({"status": "paused"}, UPDATED, False),
    "ended with the trial": ({"status": "canceled", "ended_at": 5}, DELETED, False),
    "notice was given": ({"status": "canceled", "ended_at": 5, "cancel_at_period_end": True}, DELETED, True),
    "cancelled before": ({"status": "canceled", "ended_at": -DAY}, DELETED, True),
}


@pytest.mark.parametrize(("fields", "kind", "stays"), ENDS.values(), ids=ENDS)
def test_how_a_trial_ends_says_whether_it_expired(
    billing: LiveGateway, payer: Owner, customer: str, fields: dict[str, int | str], kind: str, stays: bool
) -> None:
    """A trial that ran out unpaid stops the organization; one that was given up ends in the free plan."""
    trial_end = seconds() - 600
    about = subscription(customer, status="trialing", trial_end=trial_end)
    tell(billing.url, CREATED, about, created=seconds() - 9 * DAY)
    if "ended_at" in fields:
        fields = fields | {"ended_at": trial_end + int(fields["ended_at"])}
    tell(billing.url, kind, about | fields)
    assert active(payer) is stays
    tell(billing.url, CREATED, subscription(customer))
    assert active(payer)


def test_a_checkout_that_was_never_paid_wakes_nobody(
    billing: LiveGateway, payer: Owner, customer: str
) -> None:
    """Whoever begins a new subscription without paying for it stays stopped."""
    tell(billing.url, CREATED, subscription(customer, status="paused"))
    assert not active(payer)
    tell(billing.url, CREATED, subscription(customer, status="incomplete", created=seconds()))
    assert not active(payer)


def test_payment_and_upkeep_at_the_same_moment_leave_it_active(
    billing: LiveGateway, payer: Owner, customer: str
) -> None:
    """Whoever pays while the periodic step runs is active afterwards, whichever came first."""
    about = invoice(customer)
    tell(billing.url, FAILED, about, created=seconds() - 3 * DAY)
    paid = event(PAID, about | {"status": "paid"})
    step = partial(upkeep, billing, timedelta(days=2))
    outcomes = together(step, partial(deliver, billing.url, paid), step)
    assert Counter(type(one).__name__ for one in outcomes) == {"int": 2, "Response": 1}
    assert active(payer)


def test_a_gateway_stops_by_itself_who_does_not_pay(tmp_path: Path) -> None:
    """The gateway's own upkeep does it, without any event: soon after the grace has passed."""
    env = {
        "TOOLGATE_STRIPE_WEBHOOK_SECRET": SECRET,
        "TOOLGATE_PAYMENT_GRACE_DAYS": "1",
        "TOOLGATE_MAINTENANCE_INTERVAL_SECONDS": "1",
    }
    with LiveGateway(tmp_path, env=env) as gateway, Owner(gateway.url) as owner:
        customer = fresh("cus")
        done(gateway, "link-customer", owner.email, customer)
        tell(gateway.url, FAILED, invoice(customer), created=seconds() - DAY + 3)
        until(lambda: not active(owner))
        assert owner.check("x", "a").status_code == 401
