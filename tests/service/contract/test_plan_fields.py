"""Plan description and usage stats: every field of spec §2 on each of the four plans, one case each."""

from collections.abc import Mapping
from functools import reduce
from typing import Any

import pytest
from support.gateway import LiveGateway, Owner
from support.insight import execute
from support.kinds import Kind, integer, number, text, texts

PLANS = ("free", "pro", "business", "enterprise")
Pages = Mapping[str, Mapping[str, Any]]


def pages(gateway: LiveGateway, path: str) -> Pages:
    """Return what an organization with one agent and two log entries is shown on each of the plans."""
    shown = {}
    with Owner(gateway.url, organization="Plans") as owner:
        bot = owner.agent()
        assert [owner.log(bot, "a").status_code for _ in range(2)] == [200, 200]
        for plan in PLANS:
            organization = owner.user["organization_id"]
            assert execute(gateway, "UPDATE organizations SET plan = ? WHERE id = ?", plan, organization) == 1
            answer = owner.http.get(path)
            assert answer.status_code == 200
            shown[plan] = answer.json()
    return shown


@pytest.fixture(scope="module")
def plans(gateway: LiveGateway) -> Pages:
    """The plan's page on each plan."""
    return pages(gateway, "/api/billing/plan")


@pytest.fixture(scope="module")
def usages(gateway: LiveGateway) -> Pages:
    """The usage page on each plan."""
    return pages(gateway, "/api/billing/usage")


def part(page: Mapping[str, Any], path: str) -> Any:
    return reduce(lambda value, name: value[name], path.split("."), page)


FEATURES = ["webhooks", "approval_workflows", "advanced_permissions", "priority_support"]

#: what each plan must show, from free to enterprise; -1 is unlimited (decisions §7)
PLAN: Mapping[str, tuple[Kind, tuple[object, ...]]] = {
    "current_plan": (text, PLANS),
    "plan_details.name": (text, PLANS),
    "plan_details.price": (number, (0, 29, 199, 0)),
    "plan_details.interval": (text, ("month",) * 4),
    "plan_details.limits.max_agents": (integer, (2, 10, 50, -1)),
    "plan_details.limits.max_logs_per_month": (integer, (1_000, 50_000, 500_000, -1)),
    "plan_details.limits.log_retention_days": (integer, (7, 30, 90, -1)),
    "plan_details.limits.max_team_members": (integer, (1, 5, 25, -1)),
    "plan_details.limits.features": (texts, ([], FEATURES[:2], FEATURES[:3], FEATURES)),
    "usage.logs_this_month": (integer, (2,) * 4),
    "usage.agents_count": (integer, (1,) * 4),
}

USAGE: Mapping[str, tuple[Kind, tuple[object, ...]]] = {
    "agents.current": (integer, (1,) * 4),
    "agents.limit": (integer, (2, 10, 50, -1)),
    "agents.percentage": (number, (50, 10, 2, 0)),
    "logs.current": (integer, (2,) * 4),
    "logs.limit": (integer, (1_000, 50_000, 500_000, -1)),
    "logs.percentage": (number, (0.2, 0, 0, 0)),
    "plan": (text, PLANS),
}


@pytest.mark.parametrize("field", PLAN)
def test_a_field_of_the_plan(plans: Pages, field: str) -> None:
    """It is there, of its type, and follows the organization's plan (spec §2, §8)."""
    kind, expected = PLAN[field]
    values = [part(plans[plan], field) for plan in PLANS]
    assert all(map(kind, values)), values
    assert values == list(expected)


def test_a_description_is_a_text_of_its_own(plans: Pages) -> None:
    """`plan_details.description` is a string, another one for each plan (spec §2)."""
    descriptions = [plans[plan]["plan_details"]["description"] for plan in PLANS]
    assert all(map(text, descriptions))
    assert len(set(descriptions)) == 4


@pytest.mark.parametrize("plan", PLANS)
def test_every_plan_describes_all_plans(plans: Pages, plan: str) -> None:
    """`all_plans` has the four names, and under each what its own page says of it (spec §2)."""
    every = {name: plans[name]["plan_details"] for name in PLANS}
    assert plans[plan]["all_plans"] == every


def test_the_organization_shows_its_plan(gateway: LiveGateway) -> None:
    """`plan` of the organization is one of four, and that which it has (spec §2)."""
    assert [page["plan"] for page in pages(gateway, "/api/organization").values()] == list(PLANS)


@pytest.mark.parametrize("field", USAGE)
def test_a_field_of_usage(usages: Pages, field: str) -> None:
    """It is there, of its type, and follows the organization's plan and what it used (spec §2)."""
    kind, expected = USAGE[field]
    values = [part(usages[plan], field) for plan in PLANS]
    assert all(map(kind, values)), values
    assert values == list(expected)


def test_warnings_have_type_message_and_severity(frugal: Owner) -> None:
    """`warnings` is an array of objects of three strings, empty until usage approaches a limit (spec §2, §8)."""
    shown = []
    for _ in range(2):
        frugal.agent()
        shown.append(frugal.http.get("/api/billing/usage").json()["warnings"])
    before, [warning] = shown
    assert before == []
    assert set(warning) == {"type", "message", "severity"}
    assert all(map(text, warning.values()))
    assert (warning["type"], "2/2" in warning["message"]) == ("agents", True)
