"""`toolgate admin` on a gateway that runs: plans, rates, activity, customers."""

from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from support.admin import done, refusal, run_admin
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.insight import set_role
from support.provider import BUSINESS, DAY, fresh, invoice, seconds, subscription, tell
from support.shapes import refused
from support.tables import execute, rows

from toolgate_service.cli.context import Lines, OperatorSession, run_with_database
from toolgate_service.core.errors import StartError, StorageFault

CREATED = "customer.subscription.created"


def organization(owner: Owner) -> dict[str, object]:
    found: dict[str, object] = owner.http.get("/api/organization").json()
    return found


def audited(gateway: LiveGateway, owner: Owner, kind: str) -> list[tuple[object, ...]]:
    query = "SELECT user_id, ip_address, changes FROM audit_entries WHERE organization_id = ? AND kind = ? ORDER BY created_at, id"
    return rows(gateway, query, owner.user["organization_id"], kind)


def test_a_server_that_cannot_be_used_is_told_in_one_line(
    tended: LiveGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that is not given, or a connection that is lost, is a refusal in one line and no traceback."""
    for name, value in tended.env.items():
        if name.startswith("TOOLGATE_"):
            monkeypatch.setenv(name, value)

    async def work(_desk: OperatorSession) -> Lines:
        raise StorageFault("PostgreSQL: 55P03")

    with pytest.raises(StartError, match="55P03"):
        run_with_database(work)


def test_a_name_that_is_no_text_is_refused_in_one_line(tended: LiveGateway) -> None:
    """Bytes that are no UTF-8 name no organization and no user; the line says so, without a traceback."""
    for command in (("set-plan", "\udcff", "pro"), ("reset-password", "\udcff@example.test")):
        assert "UTF-8" in refusal(tended, *command)


@pytest.mark.parametrize("by", ["id", "slug", "email"])
def test_an_organization_has_three_names(tended: LiveGateway, tenant: Owner, by: str) -> None:
    """Its id, its slug and an admin's e-mail find it; the plan holds at once, and the change is nobody's of the organization."""
    name = tenant.email.upper() if by == "email" else str(organization(tenant)[by])
    (line,) = done(tended, "set-plan", name, "business")
    assert "business" in line
    assert "free" in line
    assert organization(tenant)["plan"] == "business"
    assert tenant.check(tenant.agent(), "a").headers["X-RateLimit-Limit"] == "10000"
    assert audited(tended, tenant, "organization.plan_changed") == [
        (None, None, '{"from":"free","to":"business","by":"operator"}')
    ]


def test_the_plan_it_has_is_not_set_again(tended: LiveGateway, tenant: Owner) -> None:
    """Nothing is changed or audited, and the command says so."""
    (line,) = done(tended, "set-plan", tenant.email, "free")
    assert "already" in line
    assert audited(tended, tenant, "organization.plan_changed") == []


def test_an_unknown_plan_or_organization_is_named(tended: LiveGateway, tenant: Owner) -> None:
    """One line, status 1, nothing changed."""
    line = refusal(tended, "set-plan", tenant.email, "gold")
    assert "'gold'" in line
    assert "free, pro, business, enterprise" in line
    for stranger in ("nobody", "nobody@example.test", "01890000-0000-7000-8000-000000000000", "%", ""):
        line = refusal(tended, "set-plan", stranger, "pro")
        assert repr(stranger) in line
        assert "slug" in line
    assert organization(tenant)["plan"] == "free"


def test_only_an_admins_email_names_an_organization(tended: LiveGateway, tenant: Owner) -> None:
    """A viewer's address does not."""
    set_role(tended, tenant, "viewer")
    assert tenant.email in refusal(tended, "set-plan", tenant.email, "pro")


def test_an_id_goes_before_a_slug_that_looks_like_it(tended: LiveGateway, tenant: Owner) -> None:
    """Nobody can name an organization so that a command meant for another hits it."""
    target = str(organization(tenant)["id"])
    with Owner(tended.url, organization=target) as mimic:
        assert organization(mimic)["slug"] == target
        done(tended, "set-plan", target, "pro")
        assert organization(mimic)["plan"] == "free"
    assert organization(tenant)["plan"] == "pro"


def test_a_smaller_plan_keeps_the_log_for_thirty_more_days(tended: LiveGateway, tenant: Owner) -> None:
    """The retention before is remembered with the moment of the change; of two changes the longest holds (decisions §7)."""
    mine = tenant.user["organization_id"]

    def kept() -> tuple[object, ...]:
        query = "SELECT retention_days_before, plan_changed_at FROM organizations WHERE id = ?"
        [(days, moment)] = rows(tended, query, mine)
        return days, moment

    done(tended, "set-plan", mine, "business")
    assert kept()[0] is None
    done(tended, "set-plan", mine, "pro")
    days, first = kept()
    assert days == 90
    done(tended, "set-plan", mine, "free")
    days, second = kept()
    assert (days, second > first) == (90, True)
    done(tended, "set-plan", mine, "pro")
    assert kept() == (90, second)
    old = (datetime.fromisoformat(str(second)) - timedelta(days=31)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    execute(tended, "UPDATE organizations SET plan_changed_at = ? WHERE id = ?", old, mine)
    done(tended, "set-plan", mine, "free")
    assert kept()[0] == 30
    done(tended, "set-plan", mine, "enterprise")
    done(tended, "set-plan", mine, "business")
    assert kept()[0] == -1


def test_an_organization_may_have_a_rate_of_its_own(tended: LiveGateway, tenant: Owner) -> None:
    """The very next check has it, and with --default the plan's again; both are audited."""
    bot = tenant.agent()
    done(tended, "set-rate", tenant.email, "123")
    assert tenant.check(bot, "a").headers["X-RateLimit-Limit"] == "123"
    done(tended, "set-rate", tenant.email, "--default")
    assert tenant.check(bot, "a").headers["X-RateLimit-Limit"] == "100"
    assert [entry[2] for entry in audited(tended, tenant, "organization.rate_changed")] == [
        '{"from":null,"to":123}',
        '{"from":123,"to":null}',
    ]


@pytest.mark.parametrize("arguments", [["0"], ["1000000001"], [], ["5", "--default"]], ids=str)
def test_a_wrong_rate_is_refused(tended: LiveGateway, tenant: Owner, arguments: list[str]) -> None:
    """A rate is from one to a billion, or the plan's."""
    refusal(tended, "set-rate", tenant.email, *arguments)
    assert tenant.check(tenant.agent(), "a").headers["X-RateLimit-Limit"] == "100"


def test_an_operator_stops_and_wakes_an_organization(tended: LiveGateway, tenant: Owner) -> None:
    """Keys and changes are refused from the very next request on, until the operator takes it back; both are audited."""
    bot = tenant.agent()
    tenant.permit(bot, "a")
    done(tended, "deactivate", tenant.email)
    refused(tenant.check(bot, "a"), 401, "Organization is not active")
    refused(tenant.http.delete(f"/api/agents/{bot}"), 403, "Organization is not active")
    assert "already" in done(tended, "deactivate", tenant.email)[0]
    done(tended, "activate", tenant.email)
    assert tenant.check(bot, "a").json()["allowed"] is True
    assert "already" in done(tended, "activate", tenant.email)[0]
    assert len(audited(tended, tenant, "organization.deactivated")) == 1
    assert len(audited(tended, tenant, "organization.activated")) == 1


def test_linking_applies_what_came_before(tended: LiveGateway, tenant: Owner) -> None:
    """Events of a customer nobody knew wait, and are applied in the provider's order once an operator says whose they are."""
    customer = fresh("cus")
    about = subscription(customer)
    items = subscription(customer, price=BUSINESS)["items"]
    moment = seconds() - 100
    assert (
        tell(tended.url, "customer.subscription.updated", about | {"items": items}, created=moment + 1)
        == "unlinked"
    )
    assert tell(tended.url, CREATED, about, created=moment) == "unlinked"
    assert tell(tended.url, "invoice.paid", invoice(customer, status="paid")) == "unlinked"
    assert organization(tenant)["plan"] == "free"
    lines = done(tended, "link-customer", tenant.email, customer)
    assert any("3 earlier events" in line and "business" in line for line in lines)
    assert organization(tenant)["plan"] == "business"
    assert len(tenant.http.get("/api/billing/invoices").json()) == 1
    [(facts,)] = set(
        rows(tended, "SELECT facts FROM provider_events WHERE provider_customer_id = ?", customer)
    )
    assert facts is None


def test_a_customer_is_one_organizations(tended: LiveGateway, tenant: Owner) -> None:
    """A second organization cannot be linked to it, nor the first to a second customer without --replace."""
    customer, other_customer = fresh("cus"), fresh("cus")
    done(tended, "link-customer", tenant.email, customer)
    with Owner(tended.url, organization="Other") as other:
        line = refusal(tended, "link-customer", other.email, customer)
        assert customer in line
        assert str(organization(tenant)["slug"]) in line
    assert "--replace" in refusal(tended, "link-customer", tenant.email, other_customer)
    done(tended, "link-customer", tenant.email, other_customer, "--replace")
    assert tell(tended.url, CREATED, subscription(customer)) == "unlinked"
    assert tell(tended.url, CREATED, subscription(other_customer)) == "applied"


def test_an_unlinked_customer_stops_nobody(tended: LiveGateway, tenant: Owner) -> None:
    """What a former customer owes is no longer the organization's."""
    customer = fresh("cus")
    done(tended, "link-customer", tenant.email, customer)
    tell(tended.url, "invoice.payment_failed", invoice(customer), created=seconds() - 8 * DAY)
    assert organization(tenant)["is_active"] is False
    done(tended, "link-customer", tenant.email, "--unlink")
    assert organization(tenant)["is_active"] is True
    assert tenant.http.get("/api/billing/subscription").status_code == 404


@pytest.mark.parametrize(
    "arguments", [[], ["cus_1", "--unlink"], ["cus 1"], ["x" * 256]], ids=["none", "both", "space", "long"]
)
def test_a_customer_that_is_none_is_refused(tended: LiveGateway, tenant: Owner, arguments: list[str]) -> None:
    """One line, nothing changed."""
    refusal(tended, "link-customer", tenant.email, *arguments)
    [(linked,)] = rows(
        tended, "SELECT provider_customer_id FROM organizations WHERE id = ?", tenant.user["organization_id"]
    )
    assert linked is None


def test_of_two_operators_one_gets_the_customer(tended: LiveGateway) -> None:
    """Four commands at the same moment link one customer to four organizations: one succeeds, the others say why not."""
    customer = fresh("cus")
    owners = [Owner(tended.url, organization=f"Racer {number}") for number in range(4)]
    ended = together(
        *[partial(run_admin, tended, "link-customer", owner.email, customer) for owner in owners]
    )
    assert sorted(one.returncode for one in ended) == [0, 1, 1, 1]
    for one in ended:
        assert "Traceback" not in one.stderr
        assert one.returncode == 0 or customer in one.stderr
    for owner in owners:
        owner.close()


def test_a_set_plan_tells_of_a_subscription_that_will_set_it_again(
    tended: LiveGateway, tenant: Owner
) -> None:
    """An operator learns that the provider's next event has the last word."""
    customer = fresh("cus")
    done(tended, "link-customer", tenant.email, customer)
    about = subscription(customer)
    tell(tended.url, CREATED, about, created=seconds() - 10)
    lines = done(tended, "set-plan", tenant.email, "enterprise")
    assert any(about["id"] in line for line in lines)
    assert organization(tenant)["plan"] == "enterprise"
    tell(tended.url, "customer.subscription.updated", about)
    assert organization(tenant)["plan"] == "pro"


def test_a_missing_database_is_named_and_not_made(tended: LiveGateway, tmp_path: Path) -> None:
    """A command with a wrong URL leaves no empty database behind."""
    path = tmp_path / "nowhere.db"
    line = refusal(tended, "set-plan", "x", "pro", env={"TOOLGATE_DATABASE_URL": f"sqlite:///{path}"})
    assert str(path) in line
    assert "TOOLGATE_DATABASE_URL" in line
    assert not path.exists()


def test_a_file_that_is_no_database_is_left_alone(tended: LiveGateway, tmp_path: Path) -> None:
    """One line, no traceback, the file untouched."""
    path = tmp_path / "notes.db"
    path.write_text("notes\n" * 1000)
    line = refusal(tended, "activate", "x", env={"TOOLGATE_DATABASE_URL": f"sqlite:///{path}"})
    assert str(path) in line
    assert path.read_text() == "notes\n" * 1000
