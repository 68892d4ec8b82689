"""The plan page."""

import re
from collections.abc import Iterator

import pytest
from support.admin import done
from support.console import Reader, text_of
from support.gateway import LiveGateway, Owner
from support.provider import SECRET, fresh, invoice, subscription, tell

from toolgate_service.console.settings import format_money

PLAN = "/console/settings/plan"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway with a payment provider."""
    env = {"TOOLGATE_STRIPE_WEBHOOK_SECRET": SECRET}
    with LiveGateway(tmp_path_factory.mktemp("paid"), env=env, plan="pro") as gateway:
        yield gateway


def test_upgrade_url_leads_to_the_plan(maya: Reader, frugal: Owner, stranger: Reader) -> None:
    """It keeps the environment and passes through the sign-in page."""
    for environment in ("", "?environment=test"):
        answer = maya.get(f"/console/plan{environment}")
        assert (answer.status_code, answer.headers["Location"]) == (303, PLAN + environment)
    assert stranger.get("/console/plan").headers["Location"] == "/console/sign-in?next=/console/plan"
    for _ in range(3):
        refused = frugal.http.post("/api/agents", json={"name": "one too many"})
    assert refused.json()["detail"]["upgrade_url"] == "/console/plan"


def test_usage_is_shown_with_limits(newcomer: Owner) -> None:
    """As text and meter; a warning from 80 percent, critical at the limit."""
    with Reader.of(newcomer.url, newcomer.email) as reader:
        words = text_of(reader.page(PLAN))
        assert "Agents 0 of 10 0 %" in words
        assert "Log entries 0 of 50,000 this month" in words
        assert "Users 1 of 5 20 %" in words
        assert 'class="notice"' not in reader.page(PLAN)
        agents = [newcomer.agent() for _ in range(8)]
        page = reader.page(PLAN)
        assert (
            "limit of agents is near: 8/10 used. Your organization\u2019s plan sets this limit. For a higher"
            in text_of(page)
        )
        assert re.search(r'class="bar near"[^>]*aria-valuemax="10" aria-valuenow="8"', page)
        agents += [newcomer.agent() for _ in range(2)]
        assert 'class="bar full"' in reader.page(PLAN)
        assert "limit of agents is reached: 10/10 used" in text_of(reader.page(PLAN))
        assert len(agents) == 10


def test_an_unlimited_plan_has_no_meter(gateway: LiveGateway, newcomer: Owner) -> None:
    done(gateway, "set-plan", newcomer.email, "enterprise")
    with Reader.of(newcomer.url, newcomer.email) as reader:
        page = reader.page(PLAN)
        assert "Agents 0 of unlimited" in text_of(page)
        assert 'role="meter"' not in page
        assert "No subscription: the operator of this gateway set the plan" in page


def test_without_a_payment_provider_no_prices_are_shown(free_gateway: LiveGateway, frugal: Owner) -> None:
    """Limits and usage, but no price, subscription or invoice."""
    with Reader.of(free_gateway.url, frugal.email) as reader:
        for plan in ("free", "pro", "business", "enterprise"):
            done(free_gateway, "set-plan", frugal.email, plan)
            words = text_of(reader.page(PLAN).partition("<main")[2])
            assert f"The {plan} plan" in words
            assert "Log entries per month" in words
            for quoted in ("Price", "a month Only", "29 ", "199", "Subscription", "Invoices", "bought"):
                assert quoted not in words, quoted


@pytest.mark.parametrize("path", [PLAN, "/console/overview"])
def test_a_reached_limit_is_shown_with_its_source(frugal: Owner, path: str) -> None:
    """The notice names the plan, and the setting and the command that change it."""
    while frugal.http.post("/api/agents", json={"name": "bot"}).status_code == 201:
        pass
    with Reader.of(frugal.url, frugal.email) as reader:
        page = reader.page(path).partition("<main")[2]
    [notice] = re.findall(r'<p class="problem" role="alert">.*?</p>', page, re.DOTALL)
    words = text_of(notice)
    assert words.startswith(
        "The free plan's limit of agents is reached: 2/2 used. Your organization\u2019s plan sets this limit. The operator"
    )
    assert "TOOLGATE_DEFAULT_PLAN" in words
    assert "toolgate admin set-plan" in words
    assert ("/console/settings/plan" in notice) is (path != PLAN)
    assert page.index(notice) < page.index("<section")


def test_with_a_payment_provider_prices_are_shown(newcomer: Owner) -> None:
    with Reader.of(newcomer.url, newcomer.email) as reader:
        words = text_of(reader.page(PLAN))
    assert "The pro plan29 per month" in words
    assert "Price per month0291990" in words
    assert "Invoices No invoices." in words


def test_subscription_and_invoices_are_shown(gateway: LiveGateway, newcomer: Owner) -> None:
    """As the provider sent them; only https addresses become links."""
    customer = fresh("cus")
    done(gateway, "link-customer", newcomer.email, customer)
    tell(gateway.url, "customer.subscription.updated", subscription(customer, status="past_due"))
    tell(gateway.url, "invoice.paid", invoice(customer))
    tell(gateway.url, "invoice.paid", invoice(customer) | {"invoice_pdf": "javascript:alert(1)"})
    invoices = newcomer.http.get("/api/billing/invoices").json()
    assert len(invoices) == 2
    with Reader.of(newcomer.url, newcomer.email) as reader:
        page = reader.page(PLAN)
    assert "past due" in page
    assert page.count(format_money(invoices[0]["amount"], invoices[0]["currency"])) == 2
    links = re.findall(r'<a href="([^"]+)" rel="noreferrer noopener"', page)
    assert links == ["https://pay.example.test/invoice.pdf"]
    assert "javascript:" not in page


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        (2900, "eur", "29.00 EUR"),
        (123456789, "usd", "1,234,567.89 USD"),
        (-50, "usd", "-0.50 USD"),
        (500, "jpy", "500 JPY"),
        (1234, "kwd", "1.234 KWD"),
        (0, "xyz", "0.00 XYZ"),
    ],
)
def test_money_has_its_currencys_digits(amount: int, currency: str, text: str) -> None:
    """Two decimal places, except for currencies with none or three."""
    assert format_money(amount, currency) == text
