"""What each plan includes, and what no plan takes away (decisions §7)."""

import pytest
from support.gateway import LiveGateway, Owner
from support.tables import execute

FEATURES = {
    "free": [],
    "pro": ["webhooks", "approval_workflows"],
    "business": ["webhooks", "approval_workflows", "advanced_permissions"],
    "enterprise": ["webhooks", "approval_workflows", "advanced_permissions", "priority_support"],
}


def test_each_plan_has_its_features(acme: Owner) -> None:
    """None, two, three and four of them."""
    plans = acme.http.get("/api/billing/plan").json()["all_plans"]
    assert {name: plan["limits"]["features"] for name, plan in plans.items()} == FEATURES


@pytest.mark.parametrize("plan", FEATURES)
def test_on_every_plan_what_requires_approval_is_held(
    free_gateway: LiveGateway, frugal: Owner, plan: str
) -> None:
    """A plan without `approval_workflows` holds, is decided and lets through once like any other."""
    organization = frugal.user["organization_id"]
    assert execute(free_gateway, "UPDATE organizations SET plan = ? WHERE id = ?", plan, organization) == 1
    bot = frugal.agent()
    frugal.permit(bot, "x", requires_approval=True, max_amount=5, amount_required=True)
    held = frugal.check(bot, "x", {"amount": 5}).json()
    assert (held["allowed"], held["requires_approval"]) == (False, True)
    assert frugal.http.post(f"/api/approvals/{held['approval_id']}/approve").status_code == 200
    assert [frugal.check(bot, "x", {"amount": 5}).json()["allowed"] for _ in range(2)] == [True, False]
