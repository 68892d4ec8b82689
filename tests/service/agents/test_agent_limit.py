"""The plan's agents (spec §8)."""

from collections import Counter
from functools import partial

from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.insight import execute
from support.shapes import refused


def limit(used: int, limit: int, plan: str) -> dict[str, str]:
    return {
        "error": "plan_limit_exceeded",
        "message": f"The {plan} plan's limit of agents is reached: {used}/{limit} used",
        "limit_type": "agents",
        "current_plan": plan,
        "upgrade_url": "/console/plan",
    }


def test_the_third_agent_on_the_free_plan_gets_the_limit_object(frugal: Owner) -> None:
    """Two agents are free; the third is 403 with the five fields of spec §7, and is not made."""
    frugal.agent()
    frugal.agent()
    refused(frugal.http.post("/api/agents", json={"name": "third"}), 403, limit(2, 2, "free"))
    assert len(frugal.http.get("/api/agents").json()) == 2


def test_parallel_creations_stay_within_the_plan(frugal: Owner) -> None:
    """Of twelve simultaneous creations on the free plan exactly two succeed (decisions §7)."""
    create = partial(frugal.http.post, "/api/agents", json={"name": "racer"})
    answers = together(*[create] * 12)
    assert Counter(answer.status_code for answer in answers) == {201: 2, 403: 10}
    assert len(frugal.http.get("/api/agents").json()) == 2


def test_inactive_agents_count_and_deleted_ones_do_not(frugal: Owner) -> None:
    """Switching an agent off makes no room, deleting it does (decisions §7)."""
    first = frugal.agent()
    frugal.agent()
    frugal.http.put(f"/api/agents/{first}", json={"status": "inactive"})
    assert frugal.http.post("/api/agents", json={"name": "third"}).status_code == 403
    frugal.http.delete(f"/api/agents/{first}")
    assert frugal.http.post("/api/agents", json={"name": "third"}).status_code == 201


def test_the_pro_plan_has_ten_agents(free_gateway: LiveGateway, frugal: Owner) -> None:
    """The limit follows the organization's plan of this moment (spec §8)."""
    organization = frugal.user["organization_id"]
    execute(free_gateway, "UPDATE organizations SET plan = 'pro' WHERE id = ?", organization)
    for _ in range(10):
        frugal.agent()
    refused(frugal.http.post("/api/agents", json={"name": "eleventh"}), 403, limit(10, 10, "pro"))
