"""What an organization reads of its plan, usage, subscription and invoices (spec §2, §4)."""

from datetime import UTC, datetime

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.insight import key_to_test, set_active, set_role
from support.provider import BUSINESS, DAY, PRO, invoice, seconds, subscription, tell
from support.shapes import MOMENT, UUID7, refused
from support.tables import execute

PATHS = ["/api/billing/plan", "/api/billing/usage", "/api/billing/subscription", "/api/billing/invoices"]

PLAN_FIELDS = {"name", "price", "interval", "limits", "description"}
LIMIT_FIELDS = {"max_agents", "max_logs_per_month", "log_retention_days", "max_team_members", "features"}


def use(gateway: LiveGateway, owner: Owner, entries: int, environment: str = "production") -> None:
    """Set the month's counter."""
    statement = "INSERT INTO monthly_usage VALUES (?, ?, ?, ?)"
    month = datetime.now(UTC).strftime("%Y-%m")
    execute(gateway, statement, owner.user["organization_id"], environment, month, entries)


def test_the_plan_has_exactly_the_fields_of_the_specification(payer: Owner) -> None:
    """GET /api/billing/plan answers the plan description of spec §2, with all four plans by name."""
    answer = payer.http.get("/api/billing/plan")
    assert answer.status_code == 200
    body = answer.json()
    assert set(body) == {"current_plan", "plan_details", "usage", "all_plans"}
    assert body["current_plan"] == "free"
    assert body["plan_details"] == body["all_plans"]["free"]
    assert body["usage"] == {"logs_this_month": 0, "agents_count": 0}
    assert list(body["all_plans"]) == ["free", "pro", "business", "enterprise"]
    for name, plan in body["all_plans"].items():
        assert (set(plan), set(plan["limits"])) == (PLAN_FIELDS, LIMIT_FIELDS)
        assert (plan["name"], plan["interval"]) == (name, "month")
        assert isinstance(plan["description"], str)
    pro = body["all_plans"]["pro"]
    assert pro["price"] == 29
    assert pro["limits"] == {
        "max_agents": 10,
        "max_logs_per_month": 50_000,
        "log_retention_days": 30,
        "max_team_members": 5,
        "features": ["webhooks", "approval_workflows"],
    }


def test_the_plan_counts_production_alone(billing: LiveGateway, payer: Owner) -> None:
    """Agents count while they are, inactive ones too; entries by the month; the test environment nowhere (spec §5)."""
    payer.agent()
    idle = payer.agent()
    payer.http.put(f"/api/agents/{idle}", json={"status": "inactive"})
    payer.http.post("/api/agents?environment=test", json={"name": "tester"})
    use(billing, payer, 41)
    use(billing, payer, 500, "test")
    payer.log(idle, "a")
    assert payer.http.get("/api/billing/plan").json()["usage"] == {"logs_this_month": 42, "agents_count": 2}
    payer.http.delete(f"/api/agents/{idle}")
    assert payer.http.get("/api/billing/plan").json()["usage"]["agents_count"] == 1


def test_a_test_entry_counts_nowhere(billing: LiveGateway, payer: Owner) -> None:
    """An entry recorded with the test key is not in the month's count (spec §5)."""
    body = {"name": "tester"}
    bot = payer.http.post("/api/agents?environment=test", json=body).json()["id"]
    headers = {"X-API-Key": key_to_test(billing, payer)}
    entry = {"agent_id": bot, "action": "a", "status": "success"}
    assert payer.http.post("/sdk/log", json=entry, headers=headers).status_code == 200
    assert payer.http.get("/api/billing/usage").json()["logs"]["current"] == 0


def test_usage_has_exactly_the_fields_of_the_specification(billing: LiveGateway, payer: Owner) -> None:
    """GET /api/billing/usage answers current, limit and percentage of agents and logs (spec §2)."""
    payer.agent()
    use(billing, payer, 123)
    answer = payer.http.get("/api/billing/usage")
    assert answer.status_code == 200
    assert answer.json() == {
        "agents": {"current": 1, "limit": 2, "percentage": 50.0},
        "logs": {"current": 123, "limit": 1000, "percentage": 12.3},
        "warnings": [],
        "plan": "free",
    }


@pytest.mark.parametrize(
    ("entries", "percentage", "severities"),
    [
        (799, 79.9, []),
        (800, 80.0, ["warning"]),
        (999, 99.9, ["warning"]),
        (1000, 100.0, ["critical"]),
        (1500, 150.0, ["critical"]),
    ],
)
def test_warnings_begin_at_80_percent_and_are_critical_at_100(
    billing: LiveGateway, payer: Owner, entries: int, percentage: float, severities: list[str]
) -> None:
    """A limit that is near is a warning, one that is reached is critical, and the message has the counts (decisions §7)."""
    use(billing, payer, entries)
    body = payer.http.get("/api/billing/usage").json()
    assert body["logs"]["percentage"] == percentage
    assert [(one["type"], one["severity"]) for one in body["warnings"]] == [
        ("logs", one) for one in severities
    ]
    for warning in body["warnings"]:
        assert set(warning) == {"type", "message", "severity"}
        assert f"{entries}/1000" in warning["message"]


def test_agents_are_warned_of_too(payer: Owner) -> None:
    """Two of two agents are critical."""
    payer.agent()
    payer.agent()
    [warning] = payer.http.get("/api/billing/usage").json()["warnings"]
    assert (warning["type"], warning["severity"]) == ("agents", "critical")


def test_what_is_not_full_is_not_shown_as_full(billing: LiveGateway, payer: Owner) -> None:
    """Percentages are rounded down to two decimals: 49,999 of 50,000 are 99.99, not 100."""
    execute(billing, "UPDATE organizations SET plan = 'pro' WHERE id = ?", payer.user["organization_id"])
    use(billing, payer, 49_999)
    body = payer.http.get("/api/billing/usage").json()
    assert body["logs"]["percentage"] == 99.99
    assert [one["severity"] for one in body["warnings"]] == ["warning"]


def test_of_no_limit_nothing_is_used_up(gateway: LiveGateway, newcomer: Owner) -> None:
    """An unlimited plan is at 0 percent, whatever was used, and never warns (decisions §7)."""
    newcomer.agent()
    use(gateway, newcomer, 10_000_000)
    body = newcomer.http.get("/api/billing/usage").json()
    assert body["agents"] == {"current": 1, "limit": -1, "percentage": 0.0}
    assert body["logs"] == {"current": 10_000_000, "limit": -1, "percentage": 0.0}
    assert (body["warnings"], body["plan"]) == ([], "enterprise")


def test_without_a_subscription_there_is_none(payer: Owner) -> None:
    """404 "Subscription not found", and an empty array of invoices (decisions §11)."""
    refused(payer.http.get("/api/billing/subscription"), 404, "Subscription not found")
    answer = payer.http.get("/api/billing/invoices")
    assert (answer.status_code, answer.json()) == (200, [])


@pytest.mark.parametrize(
    ("plan", "status", "ends"), [("business", "active", True), ("pro", "past_due", False)]
)
def test_a_subscription_has_exactly_the_fields_of_the_specification(
    billing: LiveGateway, payer: Owner, customer: str, plan: str, status: str, ends: bool
) -> None:
    """GET /api/billing/subscription answers the seven fields of spec §2."""
    price = {"pro": PRO, "business": BUSINESS}[plan]
    about = subscription(customer, price=price, status=status, cancel_at_period_end=ends)
    assert tell(billing.url, "customer.subscription.created", about) == "applied"
    body = payer.http.get("/api/billing/subscription").json()
    period = about["items"]["data"][0]
    assert UUID7.fullmatch(body.pop("id"))
    assert body == {
        "provider_subscription_id": about["id"],
        "plan": plan,
        "status": status,
        "current_period_start": moment(period["current_period_start"]),
        "current_period_end": moment(period["current_period_end"]),
        "cancel_at_period_end": ends,
    }


def test_the_period_is_read_from_older_versions_too(
    billing: LiveGateway, payer: Owner, customer: str
) -> None:
    """Before 2025 the provider's API had the period at the subscription, not at its items."""
    start = seconds() - 3 * DAY
    item = {"price": {"id": PRO}}
    about = subscription(customer, items={"data": [item]})
    about |= {"current_period_start": start, "current_period_end": start + 30 * DAY}
    assert tell(billing.url, "customer.subscription.created", about) == "applied"
    body = payer.http.get("/api/billing/subscription").json()
    assert body["current_period_start"] == moment(start)
    assert body["current_period_end"] == moment(start + 30 * DAY)


def test_invoices_have_exactly_the_fields_of_the_specification(
    billing: LiveGateway, payer: Owner, customer: str
) -> None:
    """GET /api/billing/invoices answers an array of the seven fields of spec §2, newest first."""
    pdf = "https://pay.example.test/older.pdf"
    older = invoice(customer, created=seconds() - 40 * DAY, invoice_pdf=pdf)
    newer = invoice(customer, status="paid", currency="EUR", total=19900)
    assert tell(billing.url, "invoice.paid", newer) == "applied"
    assert tell(billing.url, "invoice.payment_failed", older) == "applied"
    body = payer.http.get("/api/billing/invoices").json()
    for one in body:
        assert UUID7.fullmatch(one.pop("id"))
    assert body == [
        {
            "provider_invoice_id": newer["id"],
            "amount": 19900,
            "currency": "eur",
            "status": "paid",
            "invoice_pdf": "https://pay.example.test/invoice.pdf",
            "created_at": moment(newer["created"]),
        },
        {
            "provider_invoice_id": older["id"],
            "amount": 2900,
            "currency": "usd",
            "status": "open",
            "invoice_pdf": pdf,
            "created_at": moment(older["created"]),
        },
    ]


def test_every_role_reads_also_while_inactive(billing: LiveGateway, payer: Owner, customer: str) -> None:
    """A viewer of an inactive organization still sees what there is to pay (decisions §9)."""
    tell(billing.url, "customer.subscription.created", subscription(customer))
    set_role(billing, payer, "viewer")
    set_active(billing, payer, active=False)
    assert [payer.http.get(path).status_code for path in PATHS] == [200] * len(PATHS)


@pytest.mark.parametrize("path", PATHS)
def test_billing_needs_a_token(anyone: httpx.Client, path: str) -> None:
    """Without a token 401, as everywhere on the management surface."""
    refused(anyone.get(path), 401, "Not authenticated")


def test_another_organization_sees_nothing_of_it(billing: LiveGateway, payer: Owner, customer: str) -> None:
    """Subscriptions and invoices are the organization's own."""
    tell(billing.url, "customer.subscription.created", subscription(customer))
    tell(billing.url, "invoice.paid", invoice(customer, status="paid"))
    with Owner(billing.url, organization="Other") as other:
        assert other.http.get("/api/billing/subscription").status_code == 404
        assert other.http.get("/api/billing/invoices").json() == []
    assert len(payer.http.get("/api/billing/invoices").json()) == 1


def moment(at: int) -> str:
    """Return a second as the API shows it."""
    shown = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert MOMENT.fullmatch(shown)
    return shown
