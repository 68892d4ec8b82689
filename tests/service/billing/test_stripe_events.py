"""What follows from the provider's events: each applied once, by the provider's order (decisions §11)."""

import random
from collections import Counter
from functools import partial
from itertools import permutations

import pytest
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.provider import (
    BUSINESS,
    DAY,
    PRO,
    UNKNOWN,
    deliver,
    event,
    fresh,
    invoice,
    seconds,
    subscription,
    tell,
)
from support.tables import rows

CREATED = "customer.subscription.created"
UPDATED = "customer.subscription.updated"
DELETED = "customer.subscription.deleted"


def plan(owner: Owner) -> str:
    name: str = owner.http.get("/api/organization").json()["plan"]
    return name


def audited(gateway: LiveGateway, owner: Owner, kind: str) -> list[tuple[object, str]]:
    """Return who made changes of a kind and what they changed, oldest first."""
    query = "SELECT user_id, changes FROM audit_entries WHERE organization_id = ? AND kind = ? ORDER BY created_at, id"
    found = rows(gateway, query, owner.user["organization_id"], kind)
    return [(user, changes) for user, changes in found]


def test_the_plan_follows_the_subscription(billing: LiveGateway, payer: Owner, customer: str) -> None:
    """Created, changed and deleted: pro, business, free, each audited as nobody's of the organization."""
    about = subscription(customer)
    moment = seconds() - 100
    assert tell(billing.url, CREATED, about, created=moment) == "applied"
    assert plan(payer) == "pro"
    items = subscription(customer, price=BUSINESS)["items"]
    assert tell(billing.url, UPDATED, about | {"items": items}, created=moment + 10) == "applied"
    assert plan(payer) == "business"
    assert payer.http.get("/api/billing/subscription").json()["plan"] == "business"
    gone = about | {"status": "canceled", "ended_at": moment + 20}
    assert tell(billing.url, DELETED, gone, created=moment + 20) == "applied"
    assert plan(payer) == "free"
    assert payer.http.get("/api/billing/subscription").json()["status"] == "canceled"
    assert audited(billing, payer, "organization.plan_changed") == [
        (None, '{"from":"free","to":"pro","by":"provider"}'),
        (None, '{"from":"pro","to":"business","by":"provider"}'),
        (None, '{"from":"business","to":"free","by":"provider"}'),
    ]


def test_the_new_plan_holds_at_once(billing: LiveGateway, payer: Owner, customer: str) -> None:
    """The very next request has the paid plan's limits."""
    payer.agent()
    bot = payer.agent()
    assert payer.http.post("/api/agents", json={"name": "third"}).status_code == 403
    tell(billing.url, CREATED, subscription(customer))
    assert payer.http.post("/api/agents", json={"name": "third"}).status_code == 201
    assert payer.check(bot, "a").headers["X-RateLimit-Limit"] == "1000"


def test_ten_parallel_deliveries_apply_once(billing: LiveGateway, payer: Owner, customer: str) -> None:
    """Of ten simultaneous deliveries of one event one applies it; all are acknowledged."""
    told = event(CREATED, subscription(customer))
    answers = together(*[partial(deliver, billing.url, told)] * 10)
    assert {answer.status_code for answer in answers} == {200}
    assert Counter(answer.json()["outcome"] for answer in answers) == {"applied": 1, "duplicate": 9}
    assert len(audited(billing, payer, "organization.plan_changed")) == 1


def test_the_same_event_later_changes_nothing(billing: LiveGateway, payer: Owner, customer: str) -> None:
    """A redelivery after a newer event neither counts nor goes back."""
    about = subscription(customer)
    first = event(CREATED, about, created=seconds() - 50)
    deliver(billing.url, first)
    tell(billing.url, DELETED, about | {"status": "canceled"})
    assert deliver(billing.url, first).json()["outcome"] == "duplicate"
    assert plan(payer) == "free"


ORDERS = list(permutations(range(3)))


@pytest.mark.parametrize("order", ORDERS, ids=["".join(map(str, order)) for order in ORDERS])
def test_the_order_of_arrival_does_not_matter(
    billing: LiveGateway, payer: Owner, customer: str, order: tuple[int, ...]
) -> None:
    """Created, changed to business, cancelled at the period's end: in whatever order they come, the newest counts."""
    about = subscription(customer)
    moment = seconds() - 100
    items = subscription(customer, price=BUSINESS)["items"]
    told = [
        event(CREATED, about, created=moment),
        event(UPDATED, about | {"items": items}, created=moment + 1),
        event(UPDATED, about | {"items": items, "cancel_at_period_end": True}, created=moment + 2),
    ]
    outcomes = [deliver(billing.url, told[number]).json()["outcome"] for number in order]
    assert plan(payer) == "business"
    assert payer.http.get("/api/billing/subscription").json()["cancel_at_period_end"] is True
    seen = -1
    for number, outcome in zip(order, outcomes, strict=True):
        assert outcome == ("applied" if number > seen else "stale")
        seen = max(seen, number)


@pytest.mark.parametrize("order", ORDERS, ids=["".join(map(str, order)) for order in ORDERS])
def test_a_deletion_stays_whatever_comes_after_it(
    billing: LiveGateway, payer: Owner, customer: str, order: tuple[int, ...]
) -> None:
    """All three within one second: created before updated before deleted, since the provider's clock has no finer."""
    about = subscription(customer)
    moment = seconds() - 100
    told = [
        event(CREATED, about | {"status": "incomplete"}, created=moment),
        event(UPDATED, about, created=moment, previous={"status": "incomplete"}),
        event(DELETED, about | {"status": "canceled"}, created=moment),
    ]
    for number in order:
        deliver(billing.url, told[number])
    assert plan(payer) == "free"
    assert payer.http.get("/api/billing/subscription").json()["status"] == "canceled"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["in order", "reversed"])
def test_of_two_changes_within_a_second_the_later_counts(
    billing: LiveGateway, payer: Owner, customer: str, order: tuple[int, ...]
) -> None:
    """Which of two is later is told by what each says it has changed."""
    about = subscription(customer)
    moment = seconds() - 100
    tell(billing.url, CREATED, about, created=moment - 1)
    items = subscription(customer, price=BUSINESS)["items"]
    told = [
        event(UPDATED, about | {"status": "past_due"}, created=moment, previous={"status": "active"}),
        event(
            UPDATED,
            about | {"status": "active", "items": items},
            created=moment,
            previous={"status": "past_due", "items": about["items"]},
        ),
    ]
    for number in order:
        deliver(billing.url, told[number])
    assert payer.http.get("/api/billing/subscription").json()["status"] == "active"
    assert plan(payer) == "business"


def test_parallel_events_leave_what_the_newest_says(
    billing: LiveGateway, payer: Owner, customer: str
) -> None:
    """Twenty different events of one subscription, delivered at the same moment in any order."""
    about = subscription(customer)
    moment = seconds() - 100
    told = [
        event(UPDATED, about | {"cancel_at_period_end": bool(number % 2)}, created=moment + number)
        for number in range(20)
    ]
    random.Random(7).shuffle(told)
    answers = together(*[partial(deliver, billing.url, one) for one in told])
    assert {answer.status_code for answer in answers} == {200}
    assert payer.http.get("/api/billing/subscription").json()["cancel_at_period_end"] is True
    assert plan(payer) == "pro"


def test_nobody_is_found_by_what_an_event_claims(billing: LiveGateway, payer: Owner) -> None:
    """Only an operator's link makes a customer somebody's: no metadata, no e-mail, no name (decisions §11)."""
    organization = payer.http.get("/api/organization").json()
    claims = {
        "metadata": {"organization_id": organization["id"], "slug": organization["slug"], "plan": "business"},
        "customer_email": payer.email,
        "client_reference_id": organization["id"],
    }
    stranger = fresh("cus")
    assert tell(billing.url, CREATED, subscription(stranger) | claims) == "unlinked"
    assert plan(payer) == "free"
    [(outcome,)] = rows(
        billing, "SELECT outcome FROM provider_events WHERE provider_customer_id = ?", stranger
    )
    assert outcome == "unlinked"


def test_metadata_names_no_plan(billing: LiveGateway, payer: Owner, customer: str) -> None:
    """What a plan costs is the operator's word, in the plan file: nothing in the event overrules it."""
    about = subscription(customer) | {"metadata": {"plan": "enterprise"}}
    tell(billing.url, CREATED, about)
    assert plan(payer) == "pro"


def test_an_unknown_price_leaves_the_plan_and_may_be_sent_again(
    billing: LiveGateway, payer: Owner, customer: str
) -> None:
    """A price that buys no plan changes none; the subscription is shown, and the event counts again when sent again."""
    told = event(CREATED, subscription(customer, price=UNKNOWN))
    for _ in range(2):
        assert deliver(billing.url, told).json()["outcome"] == "unpriced"
    assert plan(payer) == "free"
    assert payer.http.get("/api/billing/subscription").json()["status"] == "active"


def test_of_several_prices_the_largest_plan_counts(billing: LiveGateway, payer: Owner, customer: str) -> None:
    """A subscription to several things buys the largest plan among them, seats and extras aside."""
    items = [{"price": {"id": price}} for price in (UNKNOWN, BUSINESS, PRO)]
    tell(billing.url, CREATED, subscription(customer, items={"data": items}))
    assert plan(payer) == "business"


@pytest.mark.parametrize("status", ["incomplete", "incomplete_expired"])
def test_what_was_never_paid_buys_nothing(
    billing: LiveGateway, payer: Owner, customer: str, status: str
) -> None:
    """A subscription whose first payment is missing gives no plan, and its end takes none."""
    assert tell(billing.url, CREATED, subscription(customer, status=status)) == "applied"
    assert plan(payer) == "free"
    tell(billing.url, CREATED, subscription(customer, created=seconds() - 9 * DAY))
    assert plan(payer) == "pro"
    assert payer.http.get("/api/billing/subscription").json()["status"] == "active"


def test_the_end_of_one_subscription_leaves_another(
    billing: LiveGateway, payer: Owner, customer: str
) -> None:
    """Whoever has a second subscription keeps its plan when the first ends."""
    first = subscription(customer, price=BUSINESS, created=seconds() - 9 * DAY)
    tell(billing.url, CREATED, first)
    tell(billing.url, CREATED, subscription(customer))
    tell(billing.url, DELETED, first | {"status": "canceled"})
    assert plan(payer) == "pro"


def test_a_customer_may_come_expanded(billing: LiveGateway, payer: Owner, customer: str) -> None:
    """The provider sends the customer's id, or the customer."""
    about = subscription(customer) | {"customer": {"id": customer, "object": "customer"}}
    assert tell(billing.url, CREATED, about) == "applied"
    assert plan(payer) == "pro"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["in order", "reversed"])
def test_a_paid_invoice_stays_paid(
    billing: LiveGateway, payer: Owner, customer: str, order: tuple[int, ...]
) -> None:
    """Failed and paid, in either order of arrival: paid, and one invoice."""
    about = invoice(customer)
    moment = seconds() - 100
    told = [
        event("invoice.payment_failed", about, created=moment),
        event("invoice.paid", about | {"status": "paid", "amount_paid": 2900}, created=moment),
    ]
    for number in order:
        deliver(billing.url, told[number])
    [shown] = payer.http.get("/api/billing/invoices").json()
    assert shown["status"] == "paid"


def test_a_link_that_is_none_is_not_shown(billing: LiveGateway, payer: Owner, customer: str) -> None:
    """What is shown as a link is one to a secure page, or nothing."""
    tell(billing.url, "invoice.paid", invoice(customer, status="paid", invoice_pdf="javascript:alert(1)"))
    [shown] = payer.http.get("/api/billing/invoices").json()
    assert shown["invoice_pdf"] is None


def test_moments_at_the_end_of_time_are_taken(billing: LiveGateway, payer: Owner, customer: str) -> None:
    """A failure or a trial's end in the last second of the year 9999 is far away, and no failure of the gateway."""
    end = 253_402_300_799
    past_due = subscription(customer, status="past_due")
    assert tell(billing.url, UPDATED, past_due, created=end) == "applied"
    trial = subscription(customer, status="trialing", trial_end=end)
    assert tell(billing.url, CREATED, trial) == "applied"
    assert tell(billing.url, "invoice.payment_failed", invoice(customer), created=end) == "applied"
    assert payer.http.get("/api/organization").json()["is_active"] is True


@pytest.mark.parametrize(
    "currency", ["", "İ" * 10, "us dollars", "x" * 11], ids=["none", "İ", "words", "long"]
)
def test_a_currency_that_is_none_is_refused(billing: LiveGateway, customer: str, currency: str) -> None:
    """A currency's code is letters of ASCII; anything else is a 400 that names it, on either database."""
    answer = deliver(billing.url, event("invoice.paid", invoice(customer, currency=currency)))
    assert answer.status_code == 400
    assert set(answer.json()["detail"]) == {"data.object.currency"}
